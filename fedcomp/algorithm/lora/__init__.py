"""Methods that work on the factors A and B of low-rank adapters (LoRA) over a frozen base."""
