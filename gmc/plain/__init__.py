"""Networks of the plain kind (Llama, Qwen2, Qwen3 and what is built like them), read as a few matrices."""
