"""Small blocks of vectors that stay in registers, for kernels that numba compiles.

LLVM keeps a local tile in registers where they suffice, and cuts its vectors to those of the processor. Products are
added by one fused multiply-add each, so every processor computes the same bits.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model
from numba.np.unsafe.ndarray import to_fixed_tuple

LANES = 16
SLACK = LANES
"""Numbers at the end of every buffer, which a tile may read."""
WIDE = bool(get_host_cpu_features().get("avx512f"))
"""Whether the processor has AVX-512: tiles of 24 vectors of 16 numbers stay in its registers, of AVX2 six."""

fixed: Any = to_fixed_tuple
"""The numbers of a short array as a tuple, of a length that is known when it is compiled."""


def operation(function: Callable[..., Any]) -> Any:
    """An operation of compiled code: numba calls `function` with the arguments' types, once for each size of tile."""
    return intrinsic(prefer_literal=True)(function)


class Tile(types.Type):
    """`rows` x `columns` vectors of 16 float32, in registers."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns
        super().__init__(f"Tile({rows}, {columns})")


_F32, I32, _I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_F32, LANES)


@register_model(Tile)
class _TileModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Tile) -> None:
        super().__init__(manager, kind, ir.ArrayType(_VECTOR, kind.rows * kind.columns))


def address(context: Any, builder: Any, kind: Any, array: Any, place: Any) -> Any:
    """The address of `array[place]`."""
    return builder.gep(context.make_array(kind)(context, builder, array).data, [place])


def offset_by(builder: Any, pointer: Any, offset: int, stride: Any = None) -> Any:
    """`offset` numbers on, or as many strides."""
    step = ir.Constant(_I64, offset)
    return builder.gep(pointer, [step if stride is None else builder.mul(stride, step)])


def _load(builder: Any, pointer: Any) -> Any:
    return builder.load(builder.bitcast(pointer, _VECTOR.as_pointer()), align=4)


def splat(builder: Any, number: Any) -> Any:
    """A vector that is filled with a number."""
    nothing = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(nothing, number, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(I32, LANES), None))


def _add_products(builder: Any, tile: Any, kind: Tile, left: Any, right: list[Any]) -> Any:
    """tile[r, c] + left(r) * right[c], each rounded once."""
    name = f"llvm.fma.v{LANES}f32"
    fma = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), name)
    for row in range(kind.rows):
        factor = left(row)
        for column in range(kind.columns):
            place = row * kind.columns + column
            total = builder.call(fma, [factor, right[column], builder.extract_value(tile, place)])
            tile = builder.insert_value(tile, total, place)
    return tile


@operation
def multiply_add(_: Any, left: Any, right: Any, addend: Any) -> Any:
    """left * right + addend of three float32, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return types.float32(types.float32, types.float32, types.float32), generate


@operation
def zeros(_: Any, rows: Any, columns: Any) -> Any:
    """A tile of zeros, whose sizes are literals or global constants."""
    kind = Tile(rows.literal_value, columns.literal_value)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(context.get_value_type(kind), None)

    return kind(rows, columns), generate


@operation
def broadcast(_: Any, tile: Any, numbers: Any, place: Any) -> Any:
    """A tile whose row r is filled with numbers[place + r]."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value, first = args[0], address(context, builder, signature.args[1], args[1], args[2])
        for row in range(tile.rows):
            vector = splat(builder, builder.load(offset_by(builder, first, row)))
            for column in range(tile.columns):
                value = builder.insert_value(value, vector, row * tile.columns + column)
        return value

    return tile(tile, numbers, types.intp), generate


@operation
def load(_: Any, tile: Any, numbers: Any, place: Any, stride: Any) -> Any:
    """A tile whose vector (r, c) is `numbers[place + r stride + 16 c :][:16]`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value, first = args[0], address(context, builder, signature.args[1], args[1], args[2])
        for row in range(tile.rows):
            start = offset_by(builder, first, row, args[3])
            for column in range(tile.columns):
                vector = _load(builder, offset_by(builder, start, LANES * column))
                value = builder.insert_value(value, vector, row * tile.columns + column)
        return value

    return tile(tile, numbers, types.intp, types.intp), generate


@operation
def store(_: Any, tile: Any, numbers: Any, place: Any, stride: Any) -> Any:
    """The opposite of `load`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first = address(context, builder, signature.args[1], args[1], args[2])
        for row in range(tile.rows):
            start = offset_by(builder, first, row, args[3])
            for column in range(tile.columns):
                pointer = builder.bitcast(offset_by(builder, start, LANES * column), _VECTOR.as_pointer())
                builder.store(builder.extract_value(args[0], row * tile.columns + column), pointer, align=4)
        return context.get_dummy_value()

    return types.none(tile, numbers, types.intp, types.intp), generate


@operation
def add_scaled(_: Any, tile: Any, scales: Any, at: Any, stride: Any, numbers: Any, place: Any) -> Any:
    """`tile[r, c] + scales[at + r stride] * numbers[place + 16 c :][:16]`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        scale = address(context, builder, signature.args[1], args[1], args[2])
        first = address(context, builder, signature.args[4], args[4], args[5])
        right = [_load(builder, offset_by(builder, first, LANES * column)) for column in range(tile.columns)]

        def left(row: int) -> Any:
            return splat(builder, builder.load(offset_by(builder, scale, row, args[3])))

        return _add_products(builder, args[0], tile, left, right)

    return tile(tile, scales, types.intp, types.intp, numbers, types.intp), generate


@operation
def add_product(_: Any, tile: Any, rows: Any, at: Any, stride: Any, numbers: Any, starts: Any, place: Any) -> Any:
    """`tile[r, c] + rows[at + r stride :][:16] * numbers[starts[c] + place :][:16]`, elementwise."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first = address(context, builder, signature.args[1], args[1], args[2])
        numbers_at = address(context, builder, signature.args[4], args[4], args[6])
        starts_at = [builder.extract_value(args[5], column) for column in range(tile.columns)]
        right = [_load(builder, builder.gep(numbers_at, [start])) for start in starts_at]
        return _add_products(
            builder, args[0], tile, lambda row: _load(builder, offset_by(builder, first, row, args[3])), right
        )

    return tile(tile, rows, types.intp, types.intp, numbers, starts, types.intp), generate


@operation
def store_first(_: Any, tile: Any, numbers: Any, place: Any, count: Any) -> Any:
    """The first `count` numbers of a vector go to numbers[place :]; all of them by a store that is far faster."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = ir.Constant(ir.VectorType(I32, LANES), list(range(LANES)))
        whole = ir.VectorType(I32, LANES)
        limit = builder.insert_element(
            ir.Constant(whole, ir.Undefined), builder.trunc(args[3], I32), ir.Constant(I32, 0)
        )
        limit = builder.shuffle_vector(limit, ir.Constant(whole, ir.Undefined), ir.Constant(whole, None))
        mask = builder.icmp_signed("<", lanes, limit)
        target = builder.bitcast(address(context, builder, signature.args[1], args[1], args[2]), _VECTOR.as_pointer())
        value = builder.extract_value(args[0], 0)
        kind = ir.FunctionType(ir.VoidType(), [value.type, target.type, I32, mask.type])
        masked = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.store.v{LANES}f32.p0")
        whole = builder.icmp_signed(">=", args[3], ir.Constant(_I64, LANES))
        with builder.if_else(whole, likely=True) as (all_numbers, some):
            with all_numbers:
                builder.store(value, target, align=4)
            with some:
                builder.call(masked, [value, target, ir.Constant(I32, 4), mask])
        return context.get_dummy_value()

    return types.none(tile, numbers, types.intp, types.intp), generate


@operation
def transpose_tile(_: Any, numbers: Any, place: Any, stride: Any, last: Any, out: Any, at: Any, step: Any) -> Any:
    """`out[at + c step :][r] = numbers[place + min(r, last) stride :][c]` for 16 rows r and 16 columns c."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first = address(context, builder, signature.args[0], args[0], args[1])
        target = address(context, builder, signature.args[4], args[4], args[5])
        rows = []
        for row in range(LANES):
            number = ir.Constant(_I64, row)
            number = builder.select(builder.icmp_signed("<", number, args[3]), number, args[3])
            rows.append(_load(builder, builder.gep(first, [builder.mul(number, args[2])])))
        for width in (8, 4, 2, 1):  # swaps that bit of the numbers of row and column
            chosen = [lane if not lane & width else LANES + lane - width for lane in range(LANES)]
            others = [lane + width if not lane & width else LANES + lane for lane in range(LANES)]
            orders = [ir.Constant(ir.VectorType(I32, LANES), order) for order in (chosen, others)]
            for row in range(LANES):
                if not row & width:
                    pair = rows[row], rows[row + width]
                    rows[row], rows[row + width] = (builder.shuffle_vector(*pair, order) for order in orders)
        for column, vector in enumerate(rows):
            builder.store(
                vector, builder.bitcast(offset_by(builder, target, column, args[6]), _VECTOR.as_pointer()), align=4
            )
        return context.get_dummy_value()

    kinds = (numbers, *[types.intp] * 3, out, *[types.intp] * 2)
    return types.none(*kinds), generate
