"""The OpenAI-compatible API: `/v1/chat/completions` and `/v1/models`, on the page's port."""
