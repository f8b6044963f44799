"""The tests. Nothing has imported torch here, which has to know before of bfloat16 products that kill a process."""

from fedcomp.runtime.bfloat16 import prepare_bfloat16

prepare_bfloat16()
