"""Pure speech-corpus code: audio, voice activity, batches, shards. No Dagster, no torch."""
