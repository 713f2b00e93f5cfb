"""What stands in a document where something is still to be filled in, `<your data>`, and what only looks like it."""

UNLIKE_TOKENIZERS = (
    r"(?!</?(?:s|pad|unk|bos|eos|sep|cls|mask|eod|eot|sot|image|img|video|audio|think|tool_call|endoftext|n)\d*>)"
)
"""Before a regular expression of placeholders: these are a tokenizer's own, as of T5, LLaMA and LLaVA."""
