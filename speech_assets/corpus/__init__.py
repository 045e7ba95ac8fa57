"""Pure speech-corpus code: profiles, audio, voice activity, batches, shards. No Dagster, no torch."""
