"""Reads the SQL of filters and actions: recursive descent, one token ahead, never back.

One method per level of precedence, lowest first. Predicates and expressions are kept apart while reading, so that
`(a = 1) + 2` is refused where it stands. What only constants decide is decided here, and refused here when it makes no
sense. Nesting is limited: the compiled code has no other guard of its stack.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from tandembus.errors import InvalidArgument
from tandembus.rules.expressions import (
    Constant,
    Expression,
    NamedProperty,
    Negative,
    NewId,
    Node,
    Positive,
    SystemProperty,
    UserProperty,
)
from tandembus.rules.parsed import (
    KEYWORDS,
    ChainBuilder,
    check_not_keyword,
    comparison,
    double,
    integer,
    likeness,
    membership,
    named_property,
    signed_constant,
    system_property,
)
from tandembus.rules.predicates import (
    And,
    IsNull,
    Not,
    Or,
    Predicate,
    SystemPropertyExists,
    UserPropertyExists,
)
from tandembus.rules.tokens import (
    DOUBLE,
    END,
    INTEGER,
    NAME,
    PARAMETER,
    TEXT,
    WORD,
    Token,
    check_unicode,
    sql_error,
    tokens_of,
)
from tandembus.rules.values import (
    DIVIDED,
    EQUAL,
    GREATER,
    GREATER_OR_EQUAL,
    LESS,
    LESS_OR_EQUAL,
    MINUS,
    MODULO,
    NOT_EQUAL,
    PLUS,
    TIMES,
)

MAX_CHARACTERS: Final = 1_024
MAX_DEPTH: Final = 64

_COMPARISONS: Final = {
    "=": EQUAL,
    "<>": NOT_EQUAL,
    "!=": NOT_EQUAL,
    "<": LESS,
    "<=": LESS_OR_EQUAL,
    ">": GREATER,
    ">=": GREATER_OR_EQUAL,
}
_SUMS: Final = {"+": PLUS, "-": MINUS}
_PRODUCTS: Final = {"*": TIMES, "/": DIVIDED, "%": MODULO}
_FUNCTIONS: Final = frozenset(("NEWID", "PROPERTY", "P"))


def parse_filter(sql: str, parameters: Mapping[str, object]) -> Predicate:
    """The predicate of a SQL filter. `parameters` holds values by folded name, as expressions see them."""
    parser = Parser(sql, parameters)
    start = parser.token
    predicate = parser.as_predicate(parser.disjunction(), start)
    parser.expect_end()
    return predicate


@final
class Parser:
    """Where reading has come to. The parser of actions uses it for the expressions within them."""

    __slots__ = ("_depth", "_next", "_parameters", "_tokens", "token")

    def __init__(self, sql: str, parameters: Mapping[str, object]) -> None:
        if not sql.strip():
            raise InvalidArgument("A SQL expression cannot be empty.")
        if len(sql) > MAX_CHARACTERS:
            raise InvalidArgument(
                f"The SQL expression has {len(sql)} characters; at most {MAX_CHARACTERS} are allowed."
            )
        check_unicode(sql)
        self._tokens: Final = tokens_of(sql)
        self._parameters: Final = parameters
        self._depth: int = 0
        self._next: int = 1
        self.token: Token = self._tokens[0]

    def advance(self) -> Token:
        """Step over the token, which is returned."""
        token = self.token
        if token.kind != END:
            self.token = self._tokens[self._next]
            self._next += 1
        return token

    def accept(self, word: str) -> bool:
        """Step over this keyword or sign if it is next."""
        if self.token.word != word:
            return False
        self.advance()
        return True

    def expect(self, word: str) -> None:
        if not self.accept(word):
            raise self.unexpected(f"'{word}'")

    def expect_end(self) -> None:
        if self.token.kind != END:
            raise self.unexpected("an operator or the end")

    def unexpected(self, wanted: str) -> InvalidArgument:
        return sql_error(self.token.at, f"expected {wanted}, found {self.token.shown()}")

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise sql_error(self.token.at, f"parentheses are nested deeper than {MAX_DEPTH}")

    def as_predicate(self, node: Node, start: Token) -> Predicate:
        if not isinstance(node, Predicate):
            if self.token.kind == END or self.token.word in (")", "AND", "OR"):
                raise sql_error(start.at, "this is a value, not a condition: compare it with something")
            raise self.unexpected("an operator")
        return node

    def as_expression(self, node: Node, start: Token) -> Expression:
        if not isinstance(node, Expression):
            raise sql_error(start.at, "a condition cannot stand where a value is needed")
        return node

    # Predicates, from the loosest binding to the tightest.

    def disjunction(self) -> Node:
        start = self.token
        node = self._conjunction()
        if self.token.word != "OR":
            return node
        operands = [self.as_predicate(node, start)]
        while self.accept("OR"):
            start = self.token
            operands.append(self.as_predicate(self._conjunction(), start))
        return Or(operands)

    def _conjunction(self) -> Node:
        start = self.token
        node = self._negation()
        if self.token.word != "AND":
            return node
        operands = [self.as_predicate(node, start)]
        while self.accept("AND"):
            start = self.token
            operands.append(self.as_predicate(self._negation(), start))
        return And(operands)

    def _negation(self) -> Node:
        count = 0
        while self.accept("NOT"):
            count += 1
        start = self.token
        node = self._condition()
        if count == 0:
            return node
        predicate = self.as_predicate(node, start)
        return Not(predicate) if count % 2 == 1 else predicate

    def _condition(self) -> Node:
        start = self.token
        node = self._sum()
        token = self.token
        if token.word in _COMPARISONS:
            self.advance()
            left = self.as_expression(node, start)
            return self._comparison(left, _COMPARISONS[token.word], token)
        if self.accept("IS"):
            return self._is_null(node, start)
        is_negated = self.accept("NOT")
        if self.accept("IN"):
            return self._in(self.as_expression(node, start), is_negated)
        if self.accept("LIKE"):
            return self._like(self.as_expression(node, start), is_negated)
        if is_negated:
            raise self.unexpected("IN or LIKE behind NOT")
        return node

    def _comparison(self, left: Expression, operator: int, token: Token) -> Predicate:
        start = self.token
        return comparison(left, self.as_expression(self._sum(), start), operator, token)

    def _is_null(self, node: Node, start: Token) -> Predicate:
        wanted = not self.accept("NOT")
        self.expect("NULL")
        if isinstance(node, UserProperty) or isinstance(node, SystemProperty):  # noqa: SIM101
            return IsNull(node, wanted)
        if isinstance(node, NamedProperty):
            return IsNull(node, wanted)
        raise sql_error(start.at, "only a property can be compared with IS NULL")

    def _in(self, operand: Expression, is_negated: bool) -> Predicate:
        self.expect("(")
        items: list[Expression] = []
        while True:
            start = self.token
            items.append(self.as_expression(self._sum(), start))
            if not self.accept(","):
                break
        self.expect(")")
        return membership(operand, items, is_negated)

    def _like(self, operand: Expression, is_negated: bool) -> Predicate:
        start = self.token
        pattern = self.as_expression(self._sum(), start)
        escape: Expression | None = None
        if self.accept("ESCAPE"):
            escape_start = self.token
            escape = self.as_expression(self._sum(), escape_start)
        return likeness(operand, pattern, escape, is_negated, start)

    # Expressions, from the loosest binding to the tightest.

    def expression(self) -> Expression:
        start = self.token
        return self.as_expression(self._sum(), start)

    def _sum(self) -> Node:
        start = self.token
        node = self._product()
        if self.token.word not in _SUMS:
            return node
        chain = ChainBuilder(self.as_expression(node, start))
        while self.token.word in _SUMS:
            sign = self.advance()
            start = self.token
            chain.add(_SUMS[sign.word], self.as_expression(self._product(), start), sign)
        return chain.finished()

    def _product(self) -> Node:
        start = self.token
        node = self._signed()
        if self.token.word not in _PRODUCTS:
            return node
        chain = ChainBuilder(self.as_expression(node, start))
        while self.token.word in _PRODUCTS:
            sign = self.advance()
            start = self.token
            chain.add(_PRODUCTS[sign.word], self.as_expression(self._signed(), start), sign)
        return chain.finished()

    def _signed(self) -> Node:
        first = self.token
        minus_count = 0
        while self.token.word in _SUMS:
            if self.advance().word == "-":
                minus_count += 1
        start = self.token
        if start is first:
            return self._primary()
        if start.kind == INTEGER and minus_count % 2 == 1:
            self.advance()
            return Constant(integer(start, -1))
        operand = self.as_expression(self._primary(), start)
        if isinstance(operand, Constant):
            return signed_constant(operand, minus_count, first)
        return Negative(operand, minus_count) if minus_count > 0 else Positive(operand)

    def _primary(self) -> Node:
        token = self.token
        kind = token.kind
        if kind == WORD:
            return self._word()
        if kind == NAME:
            self.advance()
            return UserProperty(token.text)
        if kind == TEXT:
            self.advance()
            return Constant(token.text)
        if kind == INTEGER:
            self.advance()
            return Constant(integer(token, 1))
        if kind == DOUBLE:
            self.advance()
            return Constant(double(token))
        if kind == PARAMETER:
            return self._parameter()
        if token.word == "(":
            return self._parenthesised()
        raise self.unexpected("a value")

    def _parenthesised(self) -> Node:
        self._deeper()
        self.advance()
        node = self.disjunction()
        self.expect(")")
        self._depth -= 1
        return node

    def _word(self) -> Node:
        word = self.token.word
        if word == "TRUE" or word == "FALSE":
            self.advance()
            return Constant(word == "TRUE")
        if word == "NULL":
            self.advance()
            return Constant(None)
        if word == "EXISTS":
            return self._exists()
        if self._tokens[self._next].word == "(" and word not in KEYWORDS:
            return self._function()
        return self.property_()

    def _exists(self) -> Predicate:
        self.advance()
        self.expect("(")
        node = self.property_()
        self.expect(")")
        if isinstance(node, SystemProperty):
            return SystemPropertyExists(node.index)
        assert isinstance(node, UserProperty)
        return UserPropertyExists(node.name)

    def _function(self) -> Expression:
        name = self.advance()
        if name.word not in _FUNCTIONS:
            raise sql_error(name.at, f"there is no function {name.text}(): newid(), property() and p() are known")
        self._deeper()
        self.expect("(")
        node: Expression
        if name.word == "NEWID":
            node = NewId()
        else:
            start = self.token
            node = named_property(self.expression(), start)
        self.expect(")")
        self._depth -= 1
        return node

    def property_(self) -> Expression:
        """`[sys. | user.] name`"""
        scope = self.token
        if scope.kind == NAME:
            self.advance()
            return UserProperty(scope.text)
        if scope.kind != WORD:
            raise self.unexpected("a property")
        check_not_keyword(scope)
        self.advance()
        if not self.accept("."):
            return UserProperty(scope.text)
        if scope.word != "SYS" and scope.word != "USER":
            raise sql_error(
                scope.at, f"there is no scope '{scope.text}': a name with a dot is written [{scope.text}. ...]"
            )
        name = self.token
        if name.kind != WORD and name.kind != NAME:
            raise self.unexpected(f"a property's name behind '{scope.text}.'")
        check_not_keyword(name)
        self.advance()
        return UserProperty(name.text) if scope.word == "USER" else system_property(name)

    def _parameter(self) -> Expression:
        token = self.advance()
        name = token.text.lower()
        if name not in self._parameters:
            raise sql_error(token.at, f"the parameter @{token.text} has no value")
        return Constant(self._parameters[name])
