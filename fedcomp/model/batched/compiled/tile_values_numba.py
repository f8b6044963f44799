"""What is done with the numbers of a tile one by one, for kernels that numba compiles; see `tile_numba.py`."""

from typing import Any

from llvmlite import ir
from numba import types

from fedcomp.model.batched.compiled.tile_numba import I32, LANES, address, offset_by, operation, splat


@operation
def positive_or_nan(_: Any, tile: Any) -> Any:
    """Bit i: whether number i of a vector, a tile of one, is above 0 or NaN."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.extract_value(args[0], 0)
        return builder.bitcast(builder.fcmp_unordered("ugt", value, ir.Constant(value.type, None)), ir.IntType(LANES))

    return types.uint16(tile), generate


@operation
def larger_or_nan(_: Any, left: Any, right: Any) -> Any:
    """Bit i: whether number i of the left vector is larger than that of the right one, or NaN."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        new, old = (builder.extract_value(part, 0) for part in args)
        found = builder.or_(builder.fcmp_ordered(">", new, old), builder.fcmp_unordered("uno", new, new))
        return builder.bitcast(found, ir.IntType(LANES))

    return types.uint16(left, right), generate


@operation
def select(_: Any, bits: Any, left: Any, right: Any) -> Any:
    """Numbers of the left vector where bits are set, else of the right one."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        mask = builder.bitcast(args[0], ir.VectorType(ir.IntType(1), LANES))
        pair = (builder.extract_value(part, 0) for part in args[1:])
        return builder.insert_value(args[1], builder.select(mask, *pair), 0)

    return left(types.uint16, left, right), generate


@operation
def add(_: Any, left: Any, right: Any) -> Any:
    """The sum of two vectors."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pair = (builder.extract_value(part, 0) for part in args)
        return builder.insert_value(args[0], builder.fadd(*pair), 0)

    return left(left, right), generate


@operation
def add_to_rows(_: Any, tile: Any, numbers: Any, place: Any) -> Any:
    """`tile[r, c] + numbers[place + r]`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value, first = args[0], address(context, builder, signature.args[1], args[1], args[2])
        for at in range(tile.rows * tile.columns):
            addend = splat(builder, builder.load(offset_by(builder, first, at // tile.columns)))
            value = builder.insert_value(value, builder.fadd(builder.extract_value(value, at), addend), at)
        return value

    return tile(tile, numbers, types.intp), generate


@operation
def relu(_: Any, tile: Any) -> Any:
    """Numbers above 0 and NaNs, and 0 for all others."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = args[0]
        for at in range(tile.rows * tile.columns):
            number = builder.extract_value(value, at)
            nothing = ir.Constant(number.type, None)
            kept = builder.select(builder.fcmp_ordered("<=", number, nothing), nothing, number)
            value = builder.insert_value(value, kept, at)
        return value

    return tile(tile), generate


@operation
def divide(_: Any, tile: Any, number: Any) -> Any:
    """A vector divided by a number."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.fdiv(builder.extract_value(args[0], 0), splat(builder, args[1]))
        return builder.insert_value(args[0], value, 0)

    return tile(tile, types.float32), generate


@operation
def sum_lanes(_: Any, tile: Any) -> Any:
    """The sum of a vector's numbers, pairwise: those 8 places apart first, then 4, 2 and 1."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.extract_value(args[0], 0)
        for step in (8, 4, 2, 1):
            order = ir.Constant(ir.VectorType(I32, LANES), [(lane + step) % LANES for lane in range(LANES)])
            value = builder.fadd(value, builder.shuffle_vector(value, value, order))
        return builder.extract_element(value, ir.Constant(I32, 0))

    return types.float32(tile), generate
