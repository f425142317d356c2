"""Text to token ids and back: prompt formats, chat templates and tokenizers."""
