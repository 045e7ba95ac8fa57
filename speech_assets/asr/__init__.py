"""Speech to text by Whisper: what hears the samples."""
