"""Parses intervals, of one unit or of several, into the normal form of ``expressions.nodes``."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.expressions.positions import place
from watersmeet.sql.intervals import UNITS, is_number, normal, parts_of_span, parts_of_text, shape_of, span_of, together
from watersmeet.sql.strict import StrictParser

_UNIT_CHOICES = ["SECONDS", "MINUTES", "HOURS", "DAYS", "another unit of time"]
_TEXT_CHOICE = "numbers with units, such as '1 minute 30 seconds'"
_LITERALS = (TokenType.NUMBER, TokenType.STRING)
_SIGNS = (TokenType.PLUS, TokenType.DASH)


class IntervalParser(StrictParser):
    """Parses intervals in clauses and in expressions."""

    def clause_interval(self, after: str, *others: str) -> exp.Interval:
        """Parse an interval in normal form.

        ``others`` are what else is valid here, for the error message.
        """
        start = self._curr
        if not self.at("INTERVAL"):
            hint = "write INTERVAL '5' MINUTES" if self._curr.token_type in _LITERALS else None
            raise self.unexpected(["INTERVAL", *others], after=after, hint=hint)
        interval = self._parse_interval()
        if interval is None:
            self._advance()
            raise self.unexpected(["a number such as '5'"], after="INTERVAL")
        if not isinstance(interval.this, exp.Literal):
            raise self.failures.syntax(
                f"the INTERVAL after {after} must be of numbers and units", start, hint="write INTERVAL '5' MINUTES"
            )
        place(interval, start)
        return interval

    def _parse_interval(self, require_interval: bool = True, parse_function_unit: bool = True) -> exp.Interval | None:
        """Parse an interval; None, and nothing consumed, if INTERVAL is a name here."""
        start, token = self._index, self._curr
        if not self._match(TokenType.INTERVAL) and require_interval:
            return None
        amount = self._parse_primary() if self._curr.token_type is TokenType.STRING else self._parse_term()
        if amount is None or self._is_alias(amount):
            self._retreat(start)
            return None
        parts = self._parts(amount)
        while self._at_part():
            is_negative = self._match_set(_SIGNS) and self._prev.token_type is TokenType.DASH
            amount = self._parse_primary()
            assert amount is not None
            parts += self._parts(exp.Neg(this=amount) if is_negative else amount)
        if len(parts) > 1 and not all(isinstance(each.this, exp.Literal) for each in parts):
            raise self.failures.syntax("an INTERVAL of several units must be of numbers", token)
        if (interval := together(parts)) is None:
            raise self.failures.syntax(
                "an INTERVAL cannot have months or years beside other units",
                token,
                hint="write two: ts + INTERVAL '1' MONTH + INTERVAL '3' DAYS",
            )
        return interval

    def _is_alias(self, amount: exp.Expr) -> bool:
        """Whether the word after INTERVAL is no amount, but the alias of a column of that name."""
        is_word = isinstance(amount, exp.Column) and not amount.table and not amount.this.quoted
        return is_word and bool(self._curr) and self._curr.text.upper() not in self.dialect.VALID_INTERVAL_UNITS

    def _at_part(self) -> bool:
        """Whether one more amount follows; after a sign, a number without a unit is no part of the interval."""
        following = self._tokens[self._index : self._index + 3]
        if following and following[0].token_type in _SIGNS:
            return len(following) == 3 and following[1].token_type in _LITERALS and following[2].text.upper() in UNITS
        return bool(following) and following[0].token_type in _LITERALS

    def _parts(self, amount: exp.Expr) -> list[exp.Interval]:
        """Parse the unit after an amount, if it is not in its text; return what both are in normal form."""
        token, unit_token = self._prev, self._curr
        if amount.is_string and any(map(str.isalpha, amount.name)):
            if not (parts := parts_of_text(amount.name)):
                raise self.failures.expected(token, [_TEXT_CHOICE], after="INTERVAL")
            return parts
        unit = self._parse_interval_span(amount).args.get("unit")
        if isinstance(unit, exp.IntervalSpan) and amount.is_string:
            return self._parts_of_span(amount, token, unit)
        known = UNITS.get(unit.name.upper()) if isinstance(unit, exp.Var) else None
        if known is None:
            after = "" if unit else f" {self.failures.found(token)}"
            raise self.failures.expected(unit_token, _UNIT_CHOICES, after=f"INTERVAL{after}")
        if amount.is_string and not is_number(amount.name):
            raise self.failures.expected(token, ["a number such as '5'"], after="INTERVAL")
        return [normal(amount, known)]

    def _parts_of_span(self, amount: exp.Expr, token: Token, unit: exp.IntervalSpan) -> list[exp.Interval]:
        first, last = unit.this.name.upper(), unit.expression.name.upper()
        span = span_of(first, last)
        if span is None:
            raise self.failures.syntax(
                f"there is no INTERVAL from {first} to {last}",
                token,
                hint="write YEAR TO MONTH, or two of DAY, HOUR, MINUTE and SECOND, the larger one first",
            )
        parts = parts_of_span(amount.name, span)
        if parts is None:
            raise self.failures.expected(token, [f"'{shape_of(span)}'"], after="INTERVAL")
        return parts
