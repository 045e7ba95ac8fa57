"""Two configurations asked for the same speech, and what differs: audio, words, time, memory."""
