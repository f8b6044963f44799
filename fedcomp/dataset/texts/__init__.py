"""Texts of one's own: what a file or a folder holds, its tokens, and samples of them."""
