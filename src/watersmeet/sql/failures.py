"""Syntax errors: what was found, what was expected, where, and which word was probably meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.errors import Position, SqlSyntaxError, UnsupportedError
from watersmeet.expressions.positions import excerpt, line_starts, locate

WORD = re.compile(r"[^\W\d]\w*")
KEYWORD = re.compile(r"[A-Z][A-Z_]*( [A-Z_]+)*")
CLOSE_ENOUGH = 0.7
LONGEST_QUOTED = 40

# The text of sqlglot's errors: "Required keyword: 'this' missing for <class '...query.Where'>", and so on.
CONDITION_HOLDERS = {"Where", "Having", "And", "Or", "Not"}
MISSING_PART = re.compile(r"Required keyword: '\w+' missing for <class '(?:\w+\.)*(\w+)'>")
TOO_MANY_ARGUMENTS = re.compile(
    r"The number of provided arguments \((\d+)\) is greater than the maximum number of supported arguments \((\d+)\)"
)
EXPECTING = re.compile(r"Expect(?:ed|ing) ([()\[\]{}<>])$")
FOUND_MULTIPLE = re.compile(r"Found multiple '(.+)' clauses")
EXPECTED_AFTER = re.compile(r"Expected (.+?)(?: but got .*)?$", re.DOTALL)


def one_of(choices: Sequence[str]) -> str:
    """Return ``A``, ``A or B``, or ``A, B or C``."""
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"


def is_word(token: Token | None) -> bool:
    """Return whether the token is a bare word: a name or a keyword that is not quoted."""
    quoted = (TokenType.IDENTIFIER, TokenType.STRING)
    return bool(token) and token.token_type not in quoted and bool(WORD.fullmatch(token.text))  # type: ignore[union-attr]


def nearest_keyword(word: str, keywords: Iterable[str]) -> str | None:
    """Return the keyword that ``word`` probably misspells.  Of a keyword of several words the first one counts."""
    by_head = {keyword.split(" ")[0]: keyword for keyword in keywords if KEYWORD.fullmatch(keyword)}
    close = difflib.get_close_matches(word.upper(), by_head, n=1, cutoff=CLOSE_ENOUGH)
    if not close or by_head[close[0]] == word.upper():
        return None
    return by_head[close[0]]


class Failures:
    """Makes errors about one text; ``tokens`` are those of the statement being parsed."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self.text = text
        self.tokens = tokens

    def span(self, token: Token | None) -> tuple[int, int]:
        """Return the offsets of a token, or of the place after the statement if there is no token."""
        if token:
            return token.start, token.end + 1
        end = self.tokens[-1].end + 1 if self.tokens else 0
        return end, end

    def found(self, token: Token | None) -> str:
        """Return the token as written, in quotes, or "the end of the statement"."""
        if not token:
            return "the end of the statement"
        written = self.text[token.start : token.end + 1]
        if len(written) > LONGEST_QUOTED or "\n" in written:
            written = f"{written.splitlines()[0][:LONGEST_QUOTED]}..."
        return written if written[:1] in "'\"`" else f"'{written}'"

    def expected(
        self, token: Token | None, choices: Sequence[str], *, after: str | None = None, hint: str | None = None
    ) -> SqlSyntaxError:
        """Return the error for an unexpected token.

        ``choices`` are what is expected: keywords in capitals, signs in quotes, anything else in words.  ``after``
        names what precedes.  Without a ``hint``, a token that looks like a misspelled keyword gets one.
        """
        place = f" after {after}" if after else ""
        if hint is None and token and is_word(token):
            keyword = nearest_keyword(token.text, choices)
            hint = f"did you mean {keyword}?" if keyword else None
        return self.syntax(f"found {self.found(token)}, expected {one_of(choices)}{place}", token, hint=hint)

    def syntax(self, message: str, token: Token | None, *, hint: str | None = None) -> SqlSyntaxError:
        """Return a syntax error at ``token``."""
        position, detail = self._where(token)
        return SqlSyntaxError(message, detail=detail, hint=hint, position=position)

    def unsupported(self, message: str, token: Token | None, *, hint: str | None = None) -> UnsupportedError:
        """Return the error for a clause that is parsed but not supported."""
        position, detail = self._where(token)
        return UnsupportedError(message, detail=detail, hint=hint, position=position)

    def unsupported_at(self, message: str, position: Position | None, *, hint: str | None = None) -> UnsupportedError:
        """Return the same error, given the position instead of the token."""
        if position is None:
            return UnsupportedError(message, hint=hint)
        start = line_starts(self.text)[position.line - 1] + position.col - 1
        end = next((token.end + 1 for token in self.tokens if token.start == start), start + 1)
        return UnsupportedError(message, detail=excerpt(self.text, start, end), hint=hint, position=position)

    def reworded(self, error: ParseError, token: Token | None) -> SqlSyntaxError:
        """Return one of sqlglot's own errors in the words of this module."""
        message = str(error.errors[0]["description"]) if error.errors else str(error)
        if missing := MISSING_PART.match(message):
            part = "a condition" if missing.group(1) in CONDITION_HOLDERS else "an expression"
            return self.expected(token, [part], after=self._before(token))
        if expecting := EXPECTING.match(message):
            return self._expecting(token, expecting.group(1))
        if message.startswith("Expected table name"):
            return self.expected(token, ["a stream name", "'('"], after=self._before(token))
        if arguments := TOO_MANY_ARGUMENTS.match(message):
            found, most = arguments.groups()
            plural = "" if most == "1" else "s"
            return self.syntax(f"the function takes at most {most} argument{plural}, not {found}", token)
        if twice := FOUND_MULTIPLE.match(message):
            return self.syntax(f"{twice.group(1)} appears twice", token)
        if wanted := EXPECTED_AFTER.match(message):
            what = re.sub(r"\btype\b", "a type", wanted.group(1), flags=re.IGNORECASE)
            return self.syntax(f"found {self.found(token)}, expected {what}", token)
        return self.syntax(f"found {self.found(token)}: {message[:1].lower()}{message[1:]}", token)

    def _expecting(self, token: Token | None, sign: str) -> SqlSyntaxError:
        opener = self._unclosed(token) if sign == ")" else None
        if opener is None:
            return self.expected(token, [f"'{sign}'"], after=self._before(token))
        position = locate(self.text, opener.start)
        return self.expected(token, ["','", "an operator", f"')' to close the '(' of {position}"])

    def _unclosed(self, token: Token | None) -> Token | None:
        """Return the innermost parenthesis that is open at ``token``."""
        opened: list[Token] = []
        for candidate in self.tokens:
            if token and candidate.start >= token.start:
                break
            if candidate.token_type == TokenType.L_PAREN:
                opened.append(candidate)
            elif candidate.token_type == TokenType.R_PAREN and opened:
                opened.pop()
        return opened[-1] if opened else None

    def _before(self, token: Token | None) -> str | None:
        """Return the text of the token before ``token``, for "expected ... after ..."."""
        start, _ = self.span(token)
        before = [candidate for candidate in self.tokens if candidate.start < start]
        if not before:
            return None
        return before[-1].text.upper() if is_word(before[-1]) else self.found(before[-1])

    def _where(self, token: Token | None) -> tuple[Position, str]:
        start, end = self.span(token)
        return locate(self.text, start), excerpt(self.text, start, end)
