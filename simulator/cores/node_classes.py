"""Classes of nodes: nodes on which the same jobs have the same cores are one, and are treated as one.

A job that takes some nodes of a class divides it, and has a *piece* of each class on which it is then. What
is done for a job is done once for each of its pieces, however many nodes these have. When a job has ended,
classes that were divided by it and are equal again become one; that is looked for among its own pieces only,
which is where equal ones come to be. Classes may be divided further than they need be: nothing hangs on it
but the time that it takes.
"""

from __future__ import annotations

from simulator.jit.compilation import kernel
from simulator.jit.field_records import IntegerGrid
from simulator.state.engine_state import NEVER, EngineState, NodeClassRecord, Rows
from simulator.state.node_sets import WORD_BITS, bit_index

NEAR = 12
"""Among how many classes before it, of the pieces of a job that ends, one like a class is looked for."""


@kernel
def _add_piece(state: EngineState, job: int, node_class: int, before: int) -> int:
    """Return a new piece of a job, behind the piece ``before``, or the first of all if that is ``NEVER``."""
    clock = state.clock[0]
    piece = clock.spare_piece
    if piece == NEVER:
        piece = clock.pieces
        clock.pieces += 1
    else:
        clock.spare_piece = state.pieces[piece].next
    new, here = state.pieces[piece], state.classes[node_class]
    new.job = job
    new.node_class = node_class
    new.origin = node_class
    new.prev = before
    if before == NEVER:
        new.next = state.jobs[job].pieces
        state.jobs[job].pieces = piece
    else:
        new.next = state.pieces[before].next
        state.pieces[before].next = piece
    if new.next != NEVER:
        state.pieces[new.next].prev = piece
    new.place = here.listed
    state.listed[node_class, here.listed] = piece
    here.listed += 1
    return piece


@kernel
def _unlist_piece(state: EngineState, piece: int) -> None:
    """Let a piece be no longer among those of its class."""
    held = state.pieces[piece]
    here = state.classes[held.node_class]
    here.listed -= 1
    moved = state.listed[held.node_class, here.listed]
    state.listed[held.node_class, held.place] = moved
    state.pieces[moved].place = held.place


@kernel
def _drop_piece(state: EngineState, piece: int) -> None:
    """Let a piece be no longer among those of its job, nor at all."""
    old = state.pieces[piece]
    if old.prev == NEVER:
        state.jobs[old.job].pieces = old.next
    else:
        state.pieces[old.prev].next = old.next
    if old.next != NEVER:
        state.pieces[old.next].prev = old.prev
    old.next = state.clock[0].spare_piece
    state.clock[0].spare_piece = piece


@kernel
def first_node(state: EngineState, node_class: int) -> int:
    """Return the first node of a class."""
    one = state.classes[node_class]
    if one.row == NEVER:
        return one.first
    nodes = state.sets[one.row, one.low]
    return one.low * WORD_BITS + bit_index(nodes & -nodes)


@kernel
def _take_set(state: EngineState, one: NodeClassRecord) -> bool:
    """Give a class that has none a set, of no words yet, if there is one to be had."""
    clock = state.clock[0]
    row = clock.spare_set
    if row != NEVER:
        clock.spare_set = state.sets[row, 0]
    elif clock.sets < state.sets.shape[0]:
        row = clock.sets
        clock.sets += 1
    one.row = row
    return row != NEVER


@kernel
def _drop_set(state: EngineState, one: NodeClassRecord) -> None:
    state.sets[one.row, 0] = state.clock[0].spare_set
    state.clock[0].spare_set = one.row
    one.row = NEVER


@kernel
def _shrink(state: EngineState, one: NodeClassRecord) -> None:
    """Leave out the words of the set of a class that are empty, and the set itself if it has one node."""
    while state.sets[one.row, one.low] == 0:
        one.low += 1
    while state.sets[one.row, one.high] == 0:
        one.high -= 1
    if one.nodes == 1:
        one.first = one.low * WORD_BITS + bit_index(state.sets[one.row, one.low])
        _drop_set(state, one)


@kernel
def _copy_rows(rows: Rows | None, source: int, target: int) -> None:
    if rows is None:
        return
    for kind in range(rows.taken.shape[0]):
        rows.taken[kind, target] = rows.taken[kind, source]
    for row in range(rows.cells.shape[0]):
        for word in range(rows.cells.shape[2]):
            rows.cells[row, target, word] = rows.cells[row, source, word]


@kernel
def _copy_stack(stack: IntegerGrid | None, source: int, target: int) -> None:
    if stack is None:
        return
    for level in range(stack.shape[1]):
        for word in range(stack.shape[2]):
            stack[target, level, word] = stack[source, level, word]


@kernel
def _new_class(state: EngineState, like: int) -> int:
    """Return a class without nodes, on which all jobs are that are on another."""
    clock = state.clock[0]
    new = clock.spare_class
    if new == NEVER:
        new = clock.classes
        clock.classes += 1
    else:
        clock.spare_class = state.classes[new].first
    one, other = state.classes[like], state.classes[new]
    other.row = NEVER
    other.free = one.free
    other.used = one.used
    other.free_kib = one.free_kib
    other.then_free = one.then_free
    other.then_used = one.then_used
    other.then_kib = one.then_kib
    other.factor = one.factor
    other.owner = one.owner
    other.listed = 0
    _copy_stack(state.occupied, like, new)
    _copy_stack(state.then_stack, like, new)
    _copy_stack(state.busy, like, new)
    _copy_rows(state.rows, like, new)
    for place in range(one.listed):
        piece = state.listed[like, place]
        copied = _add_piece(state, state.pieces[piece].job, new, piece)
        for word in range(state.piece_cores.shape[1]):
            state.piece_cores[copied, word] = state.piece_cores[piece, word]
    return new


@kernel
def single_out(state: EngineState, node: int) -> int:
    """Return the class of ``node``, which has no others then."""
    node_class = state.class_of[node]
    one = state.classes[node_class]
    if one.row == NEVER:
        return node_class
    new = _new_class(state, node_class)
    word = node // WORD_BITS
    state.sets[one.row, word] ^= 1 << (node - word * WORD_BITS)
    one.nodes -= 1
    _shrink(state, one)
    state.classes[new].nodes = 1
    state.classes[new].first = node
    state.class_of[node] = new
    return new


@kernel
def _is_chosen(state: EngineState, one: NodeClassRecord) -> bool:
    """Return whether all nodes of a class with a set are chosen."""
    word = one.low
    while word <= one.high and state.sets[one.row, word] & ~state.chosen[word] == 0:
        word += 1
    return word > one.high


@kernel
def _take_chosen(state: EngineState, node_class: int, first: int) -> int:
    """Return a class of the chosen nodes of a class, none of them before the word ``first``; unchoose them.

    It is the class itself if all its nodes are chosen. If there is no set to be had it is one node alone.
    """
    one, chosen = state.classes[node_class], state.chosen
    if one.row == NEVER:
        word = one.first // WORD_BITS
        chosen[word] ^= 1 << (one.first - word * WORD_BITS)
        return node_class
    if one.low == first and _is_chosen(state, one):
        for word in range(first, one.high + 1):
            chosen[word] ^= state.sets[one.row, word]
        return node_class
    nodes, last = 0, first
    for word in range(first, one.high + 1):
        found = chosen[word] & state.sets[one.row, word]
        if found:
            nodes += found.bit_count()
            last = word
    new = _new_class(state, node_class)
    other = state.classes[new]
    if nodes > 1 and not _take_set(state, other):
        nodes, last = 1, first
    other.nodes = nodes
    other.low = first
    other.high = last
    one.nodes -= nodes
    for word in range(first, last + 1):
        found = chosen[word] & state.sets[one.row, word]
        if nodes == 1:
            found &= -found
            other.first = word * WORD_BITS + bit_index(found)
        else:
            state.sets[other.row, word] = found
        chosen[word] ^= found
        state.sets[one.row, word] ^= found
        _name_class(state, word, found, new)
    _shrink(state, one)
    return new


@kernel
def _name_class(state: EngineState, word: int, nodes: int, node_class: int) -> None:
    """Note that the nodes of a word of a set are of a class."""
    while nodes:
        bit = nodes & -nodes
        nodes ^= bit
        state.class_of[word * WORD_BITS + bit_index(bit)] = node_class


@kernel
def next_chosen(state: EngineState, first: int) -> int:
    """Return the first word from ``first`` on with chosen nodes; if there is none, that after the last."""
    while first < len(state.chosen) and state.chosen[first] == 0:
        first += 1
    return first


@kernel
def take_piece(state: EngineState, job: int, word: int, before: int) -> int:
    """Return a new piece of a job behind another: of chosen nodes of the class of the first one in ``word``.

    They are chosen no longer. What it has of their cores is to be named.
    """
    first = state.chosen[word]
    origin = state.class_of[word * WORD_BITS + bit_index(first & -first)]
    piece = _add_piece(state, job, _take_chosen(state, origin, word), before)
    state.pieces[piece].origin = origin
    return piece


@kernel
def divide(state: EngineState, job: int) -> None:
    """Give ``job``, if it has none, pieces of the classes and cores that its parts name."""
    asked = state.jobs[job]
    if asked.pieces != NEVER:
        return
    before = NEVER
    part = asked.part_at
    for word in range(len(state.chosen)):
        state.chosen[word] = 0
    while part < asked.part_end:
        like, first = part, state.parts[part].node // WORD_BITS
        while part < asked.part_end and _have_same_cores(state.mask, like, part):
            word = state.parts[part].node // WORD_BITS
            state.chosen[word] |= 1 << (state.parts[part].node - word * WORD_BITS)
            part += 1
        first = next_chosen(state, first)
        while first < len(state.chosen):
            before = take_piece(state, job, first, before)
            for word in range(state.piece_cores.shape[1]):
                state.piece_cores[before, word] = state.mask[like, word]
            first = next_chosen(state, first)


@kernel
def _have_same_cores(mask: IntegerGrid, a: int, b: int) -> bool:
    differing = 0
    for word in range(mask.shape[1]):
        differing |= mask[a, word] ^ mask[b, word]
    return differing == 0


@kernel
def _choose_pieces(state: EngineState, job: int) -> int:
    """Choose all nodes on which ``job`` has a piece; return the first word in which they are."""
    low = len(state.chosen)
    for word in range(len(state.chosen)):
        state.chosen[word] = 0
    piece = state.jobs[job].pieces
    while piece != NEVER:
        one = state.classes[state.pieces[piece].node_class]
        one.piece = piece
        if one.row == NEVER:
            word = one.first // WORD_BITS
            state.chosen[word] |= 1 << (one.first - word * WORD_BITS)
            low = min(low, word)
        else:
            for word in range(one.low, one.high + 1):
                state.chosen[word] |= state.sets[one.row, word]
            low = min(low, one.low)
        piece = state.pieces[piece].next
    return low


@kernel
def name_parts(state: EngineState, job: int) -> None:
    """Name in the parts of ``job`` the nodes and cores of its pieces, in order of node."""
    part = state.jobs[job].part_at
    word = next_chosen(state, _choose_pieces(state, job))
    while word < len(state.chosen):
        rest = state.chosen[word]
        while rest:
            bit = rest & -rest
            rest ^= bit
            node = word * WORD_BITS + bit_index(bit)
            piece = state.classes[state.class_of[node]].piece
            state.parts[part].node = node
            for core_word in range(state.piece_cores.shape[1]):
                state.mask[part, core_word] = state.piece_cores[piece, core_word]
            part += 1
        word = next_chosen(state, word + 1)


@kernel
def _unite(state: EngineState, node_class: int, other: int) -> None:
    """Let the nodes of a class be of another that is equal to it, if there is a set for them."""
    one, old = state.classes[node_class], state.classes[other]
    if one.row == NEVER:
        if not _take_set(state, one):
            return
        one.low = one.first // WORD_BITS
        one.high = one.low
        state.sets[one.row, one.low] = 1 << (one.first - one.low * WORD_BITS)
    if old.row == NEVER:
        old.low = old.first // WORD_BITS
        old.high = old.low
    for word in range(old.low, one.low):
        state.sets[one.row, word] = 0
    for word in range(one.high + 1, old.high + 1):
        state.sets[one.row, word] = 0
    one.low = min(one.low, old.low)
    one.high = max(one.high, old.high)
    for word in range(old.low, old.high + 1):
        nodes = 1 << (old.first - word * WORD_BITS) if old.row == NEVER else state.sets[old.row, word]
        state.sets[one.row, word] |= nodes
        _name_class(state, word, nodes, node_class)
    if old.row != NEVER:
        _drop_set(state, old)
    one.nodes += old.nodes
    for place in range(old.listed):
        _drop_piece(state, state.listed[other, place])
    old.nodes = 0
    old.listed = 0
    old.first = state.clock[0].spare_class
    state.clock[0].spare_class = other


@kernel
def undo_divide(state: EngineState, job: int) -> None:
    """Let ``job``, which has just got its pieces and took nothing, have none."""
    piece = state.jobs[job].pieces
    while piece != NEVER:
        held = state.pieces[piece]
        after = held.next
        _unlist_piece(state, piece)
        if held.node_class != held.origin:
            _unite(state, held.origin, held.node_class)
        _drop_piece(state, piece)
        piece = after


@kernel
def _are_equal(state: EngineState, node_class: int, other: int) -> bool:
    one, two = state.classes[node_class], state.classes[other]
    if (
        one.listed != two.listed
        or one.used != two.used
        or one.free_kib != two.free_kib
        or one.owner != two.owner
        or one.factor != two.factor
    ):
        return False
    for place in range(one.listed):
        piece = state.listed[node_class, place]
        found = False
        for elsewhere in range(two.listed):
            like = state.listed[other, elsewhere]
            if state.pieces[piece].job == state.pieces[like].job:
                found = _have_same_cores(state.piece_cores, piece, like)
        if not found:
            return False
    return True


@kernel
def _unite_with_near(state: EngineState, piece: int) -> None:
    """Unite the class of a piece with an equal one of the pieces before it, if there is one."""
    node_class = state.pieces[piece].node_class
    before = state.pieces[piece].prev
    for _ in range(NEAR):
        if before == NEVER:
            return
        other = state.pieces[before].node_class
        if _are_equal(state, node_class, other):
            if state.classes[node_class].nodes > state.classes[other].nodes:
                state.pieces[before].node_class = node_class
                node_class, other = other, node_class
            _unite(state, other, node_class)
            _drop_piece(state, piece)
            return
        before = state.pieces[before].prev


@kernel
def leave_classes(state: EngineState, job: int) -> None:
    """Let ``job``, which has given back all, have no pieces, and unite classes that are equal without it."""
    piece = state.jobs[job].pieces
    while piece != NEVER:
        _unlist_piece(state, piece)
        piece = state.pieces[piece].next
    piece = state.jobs[job].pieces
    while piece != NEVER:
        after = state.pieces[piece].next
        _unite_with_near(state, piece)
        piece = after
    while state.jobs[job].pieces != NEVER:
        _drop_piece(state, state.jobs[job].pieces)
