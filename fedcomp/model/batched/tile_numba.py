"""Small blocks of vectors that stay in registers, for kernels that numba compiles.

LLVM keeps a local tile in registers where they suffice, and cuts its vectors to those of the processor. Products are
added by one fused multiply-add each, so every processor computes the same bits.

numba keeps compiled kernels as long as the kernel's own file stays as it is: after a change here remove them
(`find . -name "conv_*numba*.nb?" -delete`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model
from numba.np.unsafe.ndarray import to_fixed_tuple

LANES = 16

fixed: Any = to_fixed_tuple
"""The numbers of a short array as a tuple, of a length that is known when it is compiled."""


def _operation(function: Callable[..., Any]) -> Any:
    """numba calls `function` with the types of the arguments, once for each kind of tile."""
    return intrinsic(prefer_literal=True)(function)


class Tile(types.Type):
    """`rows` x `columns` vectors of 16 float32, in registers."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns
        super().__init__(f"Tile({rows}, {columns})")


_F32, _I32, _I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_F32, LANES)


@register_model(Tile)
class _TileModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Tile) -> None:
        super().__init__(manager, kind, ir.ArrayType(_VECTOR, kind.rows * kind.columns))


def _address(context: Any, builder: Any, kind: Any, array: Any, place: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [place])


def _at(builder: Any, pointer: Any, offset: int, stride: Any = None) -> Any:
    """`offset` numbers on, or as many strides."""
    step = ir.Constant(_I64, offset)
    return builder.gep(pointer, [step if stride is None else builder.mul(stride, step)])


def _load(builder: Any, pointer: Any) -> Any:
    return builder.load(builder.bitcast(pointer, _VECTOR.as_pointer()), align=4)


def _splat(builder: Any, number: Any) -> Any:
    nothing = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(nothing, number, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_I32, LANES), None))


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


@_operation
def zeros(_: Any, rows: Any, columns: Any) -> Any:
    kind = Tile(rows.literal_value, columns.literal_value)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(context.get_value_type(kind), None)

    return kind(rows, columns), generate


@_operation
def broadcast(_: Any, tile: Any, numbers: Any, place: Any) -> Any:
    """A tile whose row r is filled with numbers[place + r]."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value, first = args[0], _address(context, builder, signature.args[1], args[1], args[2])
        for row in range(tile.rows):
            vector = _splat(builder, builder.load(_at(builder, first, row)))
            for column in range(tile.columns):
                value = builder.insert_value(value, vector, row * tile.columns + column)
        return value

    return tile(tile, numbers, types.intp), generate


@_operation
def loaded(_: Any, tile: Any, numbers: Any, place: Any, stride: Any) -> Any:
    """A tile whose vector (r, c) is `numbers[place + r stride + 16 c :][:16]`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value, first = args[0], _address(context, builder, signature.args[1], args[1], args[2])
        for row in range(tile.rows):
            start = _at(builder, first, row, args[3])
            for column in range(tile.columns):
                vector = _load(builder, _at(builder, start, LANES * column))
                value = builder.insert_value(value, vector, row * tile.columns + column)
        return value

    return tile(tile, numbers, types.intp, types.intp), generate


@_operation
def store(_: Any, tile: Any, numbers: Any, place: Any, stride: Any) -> Any:
    """The opposite of `loaded`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first = _address(context, builder, signature.args[1], args[1], args[2])
        for row in range(tile.rows):
            start = _at(builder, first, row, args[3])
            for column in range(tile.columns):
                pointer = builder.bitcast(_at(builder, start, LANES * column), _VECTOR.as_pointer())
                builder.store(builder.extract_value(args[0], row * tile.columns + column), pointer, align=4)
        return context.get_dummy_value()

    return types.none(tile, numbers, types.intp, types.intp), generate


@_operation
def add_scaled(_: Any, tile: Any, scales: Any, at: Any, numbers: Any, place: Any) -> Any:
    """`tile[r, c] + scales[at + r] * numbers[place + 16 c :][:16]`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        scale = _address(context, builder, signature.args[1], args[1], args[2])
        first = _address(context, builder, signature.args[3], args[3], args[4])
        right = [_load(builder, _at(builder, first, LANES * column)) for column in range(tile.columns)]
        return _add_products(
            builder, args[0], tile, lambda row: _splat(builder, builder.load(_at(builder, scale, row))), right
        )

    return tile(tile, scales, types.intp, numbers, types.intp), generate


@_operation
def add_scaled_by_rows(_: Any, tile: Any, scales: Any, at: Any, stride: Any, numbers: Any, place: Any) -> Any:
    """`tile[r, c] + scales[at + r stride] * numbers[place + 16 c :][:16]`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        scale = _address(context, builder, signature.args[1], args[1], args[2])
        first = _address(context, builder, signature.args[4], args[4], args[5])
        right = [_load(builder, _at(builder, first, LANES * column)) for column in range(tile.columns)]
        return _add_products(
            builder, args[0], tile, lambda row: _splat(builder, builder.load(_at(builder, scale, row, args[3]))), right
        )

    return tile(tile, scales, types.intp, types.intp, numbers, types.intp), generate


@_operation
def add_product(_: Any, tile: Any, rows: Any, at: Any, stride: Any, numbers: Any, starts: Any, place: Any) -> Any:
    """`tile[r, c] + rows[at + r stride :][:16] * numbers[starts[c] + place :][:16]`, elementwise."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first = _address(context, builder, signature.args[1], args[1], args[2])
        numbers_at = _address(context, builder, signature.args[4], args[4], args[6])
        starts_at = [builder.extract_value(args[5], column) for column in range(tile.columns)]
        right = [_load(builder, builder.gep(numbers_at, [start])) for start in starts_at]
        return _add_products(
            builder, args[0], tile, lambda row: _load(builder, _at(builder, first, row, args[3])), right
        )

    return tile(tile, rows, types.intp, types.intp, numbers, starts, types.intp), generate


@_operation
def not_negative(_: Any, tile: Any) -> Any:
    """Bit i: whether number i of a vector, a tile of one, is above 0 or NaN."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.extract_value(args[0], 0)
        return builder.bitcast(builder.fcmp_unordered("ugt", value, ir.Constant(value.type, None)), ir.IntType(LANES))

    return types.uint16(tile), generate


@_operation
def larger(_: Any, left: Any, right: Any) -> Any:
    """Bit i: whether number i of the left vector is larger than that of the right one, or NaN."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        new, old = (builder.extract_value(part, 0) for part in args)
        found = builder.or_(builder.fcmp_ordered(">", new, old), builder.fcmp_unordered("uno", new, new))
        return builder.bitcast(found, ir.IntType(LANES))

    return types.uint16(left, right), generate


@_operation
def chosen(_: Any, bits: Any, left: Any, right: Any) -> Any:
    """Numbers of the left vector where bits are set, else of the right one."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        mask = builder.bitcast(args[0], ir.VectorType(ir.IntType(1), LANES))
        pair = (builder.extract_value(part, 0) for part in args[1:])
        return builder.insert_value(args[1], builder.select(mask, *pair), 0)

    return left(types.uint16, left, right), generate


@_operation
def added(_: Any, left: Any, right: Any) -> Any:
    """The sum of two vectors."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pair = (builder.extract_value(part, 0) for part in args)
        return builder.insert_value(args[0], builder.fadd(*pair), 0)

    return left(left, right), generate


@_operation
def divided(_: Any, tile: Any, number: Any) -> Any:
    """A vector divided by a number."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.fdiv(builder.extract_value(args[0], 0), _splat(builder, args[1]))
        return builder.insert_value(args[0], value, 0)

    return tile(tile, types.float32), generate


@_operation
def total(_: Any, tile: Any) -> Any:
    """The sum of a vector's numbers, pairwise: those 8 places apart first, then 4, 2 and 1."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.extract_value(args[0], 0)
        for step in (8, 4, 2, 1):
            order = ir.Constant(ir.VectorType(_I32, LANES), [(lane + step) % LANES for lane in range(LANES)])
            value = builder.fadd(value, builder.shuffle_vector(value, value, order))
        return builder.extract_element(value, ir.Constant(_I32, 0))

    return types.float32(tile), generate


@_operation
def store_first(_: Any, tile: Any, numbers: Any, place: Any, count: Any) -> Any:
    """The first `count` numbers of a vector go to numbers[place :]."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = ir.Constant(ir.VectorType(_I32, LANES), list(range(LANES)))
        whole = ir.VectorType(_I32, LANES)
        limit = builder.insert_element(
            ir.Constant(whole, ir.Undefined), builder.trunc(args[3], _I32), ir.Constant(_I32, 0)
        )
        limit = builder.shuffle_vector(limit, ir.Constant(whole, ir.Undefined), ir.Constant(whole, None))
        mask = builder.icmp_signed("<", lanes, limit)
        target = builder.bitcast(_address(context, builder, signature.args[1], args[1], args[2]), _VECTOR.as_pointer())
        value = builder.extract_value(args[0], 0)
        kind = ir.FunctionType(ir.VoidType(), [value.type, target.type, _I32, mask.type])
        masked = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.store.v{LANES}f32.p0")
        builder.call(masked, [value, target, ir.Constant(_I32, 4), mask])
        return context.get_dummy_value()

    return types.none(tile, numbers, types.intp, types.intp), generate
