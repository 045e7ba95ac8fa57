"""Load tests of speech servers, as their clients meet them: ours, or any of OpenAI's interface."""
