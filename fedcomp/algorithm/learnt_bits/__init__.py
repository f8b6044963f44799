"""Methods whose clients learn the bits that they send: signs and their size, a bit of each weight, a mask's flips."""
