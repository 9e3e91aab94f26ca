"""Words, numbers and signs of a rule's SQL: one pass over the text, no regular expressions."""

from __future__ import annotations

from typing import Final, final

from tandembus.errors import InvalidArgument

END: Final = 0
WORD: Final = 1
"""A regular identifier or a keyword."""
NAME: Final = 2
"""A [delimited] or "quoted" identifier, which is never a keyword."""
TEXT: Final = 3
INTEGER: Final = 4
DOUBLE: Final = 5
PARAMETER: Final = 6
SIGN: Final = 7

_SIGNS: Final = frozenset("=<>+-*/%(),.;")
_DOUBLE_SIGNS: Final = frozenset(("<>", "!=", "<=", ">="))
_SPACES: Final = frozenset(" \t\r\n\f\v\u00a0")
_DIGITS: Final = frozenset("0123456789")
_CLOSING: Final = {"[": "]", '"': '"', "'": "'"}


@final
class Token:
    """`text` is what it means (a name without its brackets); `at` is where it stands, counted from 0."""

    __slots__ = ("at", "kind", "text", "word")

    def __init__(self, kind: int, text: str, at: int) -> None:
        self.kind: Final = kind
        self.text: Final = text
        self.at: Final = at
        self.word: Final = text.upper() if kind == WORD else text if kind == SIGN else ""
        """What keywords and signs are compared with; empty for all others."""

    def shown(self) -> str:
        return "the end" if self.kind == END else f"'{self.text[:40]}'"


class SqlError(InvalidArgument):
    """A mistake in the SQL, and where it stands, counted from 0."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(f"The SQL expression is not valid at character {at + 1}: {reason}.")
        self.at: Final = at


def sql_error(at: int, reason: str) -> SqlError:
    return SqlError(at, reason)


def is_unicode(text: str) -> bool:
    """Whether the text can be written at all: Python's strings can hold half a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_unicode(text: str) -> None:
    if not is_unicode(text):
        raise InvalidArgument("Half a Unicode character (a lone surrogate) cannot stand in a rule.")


def tokens_of(sql: str) -> list[Token]:
    """All tokens, the last of which is END. Raises InvalidArgument where a character begins none."""
    lexer = _Lexer(sql)
    tokens: list[Token] = []
    while True:
        token = lexer.next()
        tokens.append(token)
        if token.kind == END:
            return tokens


def _goes_on(character: str) -> bool:
    """Whether a regular identifier may hold it."""
    return character == "_" or character.isalpha() or character.isdecimal()


@final
class _Lexer:
    __slots__ = ("_at", "_sql")

    def __init__(self, sql: str) -> None:
        self._sql: Final = sql
        self._at: int = 0

    def _peek(self, ahead: int = 0) -> str:
        """The character there; empty behind the end."""
        at = self._at + ahead
        return self._sql[at] if at < len(self._sql) else ""

    def next(self) -> Token:
        while self._peek() in _SPACES:
            self._at += 1
        start = self._at
        character = self._peek()
        if character == "":
            return Token(END, "", start)
        if character.isalpha():
            return Token(WORD, self._identifier(), start)
        if character in _DIGITS or (character == "." and self._peek(1) in _DIGITS and not self._is_behind_word()):
            return self._number()
        if character == "'":
            return Token(TEXT, self._enclosed("string"), start)
        if character == "[" or character == '"':
            return self._delimited_name()
        if character == "@":
            return self._parameter()
        return self._sign()

    def _is_behind_word(self) -> bool:
        """`user.1` is a wrong name, not a word and a number."""
        return self._at > 0 and (_goes_on(self._sql[self._at - 1]) or self._sql[self._at - 1] in ']"')

    def _identifier(self) -> str:
        start = self._at
        while self._peek() != "" and _goes_on(self._peek()):
            self._at += 1
        return self._sql[start : self._at]

    def _delimited_name(self) -> Token:
        start = self._at
        name = self._enclosed("name")
        if name == "":
            raise sql_error(start, "a property's name cannot be empty")
        return Token(NAME, name, start)

    def _enclosed(self, what: str) -> str:
        """Text up to the closing sign, which stands for itself when doubled."""
        start = self._at
        closing = _CLOSING[self._peek()]
        parts: list[str] = []
        at = start + 1
        while True:
            end = self._sql.find(closing, at)
            if end < 0:
                raise sql_error(start, f"this {what} does not end")
            parts.append(self._sql[at:end])
            at = end + 1
            if at >= len(self._sql) or self._sql[at] != closing:
                self._at = at
                return closing.join(parts)
            at += 1

    def _parameter(self) -> Token:
        start = self._at
        self._at += 1
        if self._peek() == "" or not self._peek().isalpha():
            raise sql_error(start, "a parameter's name begins with a letter")
        return Token(PARAMETER, self._identifier(), start)

    def _number(self) -> Token:
        start = self._at
        kind = INTEGER
        self._digits()
        if self._peek() == ".":
            kind = DOUBLE
            self._at += 1
            self._digits()
        if self._peek() == "e" or self._peek() == "E":
            kind = DOUBLE
            self._exponent(start)
        if self._peek() != "" and _goes_on(self._peek()):
            raise sql_error(start, "a number and a name need something between them")
        return Token(kind, self._sql[start : self._at], start)

    def _digits(self) -> None:
        while self._peek() in _DIGITS:
            self._at += 1

    def _exponent(self, start: int) -> None:
        self._at += 1
        if self._peek() == "+" or self._peek() == "-":
            self._at += 1
        if self._peek() not in _DIGITS:
            raise sql_error(start, "the exponent of this number has no digits")
        self._digits()

    def _sign(self) -> Token:
        start = self._at
        two = self._peek() + self._peek(1)
        if two in _DOUBLE_SIGNS:
            self._at += 2
            return Token(SIGN, two, start)
        if self._peek() not in _SIGNS:
            raise sql_error(start, f"'{self._peek()}' means nothing here")
        self._at += 1
        return Token(SIGN, two[0], start)
