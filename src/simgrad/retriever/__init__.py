"""A model with its tokenizer, device and data: encode, measure, mine, count, search, export."""
