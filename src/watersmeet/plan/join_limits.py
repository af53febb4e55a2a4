"""Limits of the state of joins, as ``eviction`` and ``max_rows_per_key`` set them (kernels/evicting/)."""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.errors import ConfigError, UnsupportedError, WatersmeetError
from watersmeet.kernels.evicting.limits import Limits, Policy
from watersmeet.plan.emission import DEFAULT_LIMIT, LIMIT_SETTING, Emission
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.tree import Join, changing, operators_of
from watersmeet.settings.query_settings import QuerySettings

EVICTION, ROWS_PER_KEY, EVICTED_ROWS = "eviction", "max_rows_per_key", "evicted_rows"


def policy_of(settings: QuerySettings) -> Policy:
    """What happens to joins at their limits."""
    return Policy(settings.eviction)


def limits_of(query: LogicalQuery, emission: Emission, names: tuple[str, str]) -> Limits | None:
    """The limits of a join's kernel, whose sides have these names; None if it evicts nothing and counts no keys."""
    settings = query.settings
    if not settings.limits_joins:
        return None
    return Limits(
        policy_of(settings),
        settings.max_rows_per_key,
        emission.max_state_bytes or DEFAULT_LIMIT,
        names,
        keeps_rows=settings.evicted_rows != "drop",
    )


def max_bytes(settings: QuerySettings, emission: Emission, *, evicts: bool) -> int | None:
    """The limit of an operator's state in bytes (None: no limit); one that ``evicts`` at its limit always has one.

    Where joins evict at a limit, it is theirs: what stands over them may be as large as without that setting.
    """
    if evicts:
        return emission.max_state_bytes or DEFAULT_LIMIT
    if emission.max_state_bytes is not None and policy_of(settings).evicts_at_limit:
        return max(emission.max_state_bytes, DEFAULT_LIMIT)
    return emission.max_state_bytes


def check_join_limits(query: LogicalQuery) -> None:
    """Check the settings against the joins of a query after all passes.

    Raises ``ConfigError`` for settings that need another, contradict it, or apply to nothing, and ``UnsupportedError``
    for joins that cannot forget rows.
    """
    settings = query.settings
    if (missing := _missing(settings)) is not None:
        raise _placed(query, *missing)
    if not settings.limits_joins:
        return
    named = _named(settings)
    if query.shares_stores:
        stores = UnsupportedError(
            f"{named}: queries of a statement set share stores, and one would evict the rows of another",
            hint=f"omit {named}, or run each INSERT INTO by itself",
        )
        raise _placed(query, named, stores)
    if (contradiction := _contradiction(query)) is not None:
        setting, why = contradiction
        raise _placed(query, setting, ConfigError(f"{named} does not go with {setting}: {why}", hint=f"omit {setting}"))
    joins = [join for join in operators_of(query.root) if not _is_lookup(join, query)]
    if not joins:
        none = ConfigError(f"{named} limits the state of joins of streams, and there is none", hint="leave it out")
        raise _placed(query, named, none)
    for join in joins:
        _check_join(query, join, named)


def explain_limits(settings: QuerySettings, emission: Emission, *, others: bool) -> Sequence[str]:
    """The lines of EXPLAIN about limits; ``others``: whether there are operators that evict nothing."""
    found = []
    policy = policy_of(settings)
    if (most := max_bytes(settings, emission, evicts=policy.evicts_at_limit)) is not None:
        origin = "set" if settings.join_max_buffered_bytes is not None else f"default ({DEFAULT_LIMIT:,})"
        limit = f"{LIMIT_SETTING} = {most:,}, {origin}"
        found.append(f"state limit: {limit}; {_AT_LIMIT[policy]}")
    if others and policy.evicts_at_limit and (most := max_bytes(settings, emission, evicts=False)) is not None:
        found.append(f"state limit of operators that evict nothing: {most:,}; {_STOPS}")
    if settings.max_rows_per_key is not None:
        beyond = "the query stops, nothing is lost" if policy is Policy.STOP else "its oldest rows are evicted"
        found.append(f"each side holds at most {settings.max_rows_per_key:,} rows of a key; beyond, {beyond}")
    if policy is not Policy.STOP:
        kept = "" if settings.evicted_rows == "drop" else f", and kept in {settings.evicted_rows}"
        found.append(
            f"evicted rows are counted{kept}; results may lack their pairs, and rows may be padded whose partner was "
            "evicted"
        )
    return found


_STOPS = "at the limit the query stops, nothing is lost"
_AT_LIMIT = {
    Policy.STOP: _STOPS,
    Policy.PER_KEY: _STOPS,
    Policy.OLDEST: "at the limit the oldest rows are evicted",
    Policy.LRU: "at the limit the keys not used for longest are evicted",
    Policy.PRESSURE: "at the limit the oldest rows are evicted, a quarter of the state at once",
}


def _missing(settings: QuerySettings) -> tuple[str, WatersmeetError] | None:
    """The setting that needs another, and the error that says so."""
    if settings.eviction == "per_key" and settings.max_rows_per_key is None:
        return EVICTION, ConfigError(
            "eviction = 'per_key' evicts the oldest rows of keys that have too many, and nothing says how many are",
            hint=f"add {ROWS_PER_KEY} = …",
        )
    if settings.evicted_rows != "drop" and settings.eviction == "stop":
        return EVICTED_ROWS, ConfigError(
            f"{EVICTED_ROWS} = '{settings.evicted_rows}', but no row is ever evicted",
            hint="add eviction = 'oldest', 'lru', 'per_key' or 'pressure', or leave it out",
        )
    return None


def _contradiction(query: LogicalQuery) -> tuple[str, str] | None:
    settings = query.settings
    if settings.multi_join == "on":
        return "multi_join", "an operator of several joins keeps the rows of all, and evicts none yet"
    if settings.join_algorithm == "sliding":
        return "join_algorithm", "a sliding join evicts no rows yet"
    if settings.skew == "spread":
        return "skew", "the rows of a key that is spread are counted and evicted in no one place"
    return None


def _check_join(query: LogicalQuery, join: Join, named: str) -> None:
    if join.asof is not None:
        raise _placed(
            query,
            named,
            UnsupportedError(
                f"{named}: a join as of a time needs the newest version of each key, however old, and evicts none",
                hint="leave it out; versions that no row can need are dropped in any case",
            ),
        )
    if changed := changing(join):
        raise _placed(
            query,
            named,
            UnsupportedError(
                f"{named}: the rows of {changed[0].stream.name} change, and a change of a row that was evicted could "
                "not be applied",
                hint=f"leave it out, and bound the state with {LIMIT_SETTING}, where the query stops",
            ),
        )
    is_lru = query.settings.eviction == "lru"
    if (is_lru or query.settings.max_rows_per_key is not None) and not join.condition.keys:
        setting, text = (EVICTION, f"{EVICTION} = 'lru'") if is_lru else (ROWS_PER_KEY, ROWS_PER_KEY)
        error = ConfigError(f"{text} needs keys: this join has none", hint="compare columns with =, or omit it")
        raise _placed(query, setting, error)


def evicting_refused(join: Join, query: LogicalQuery) -> UnsupportedError:
    """The error for a join over results that may be retracted, which would evict rows."""
    named = _named(query.settings)
    return UnsupportedError(
        f"{named}: results of the join below may be retracted, and the retraction of a row that was evicted would find "
        "nothing",
        hint="use EMIT FINAL, where results are given once and for all",
        position=query.text.settings_positions.get(named, join.position),
    )


def _named(settings: QuerySettings) -> str:
    """The setting that errors name."""
    return EVICTION if settings.eviction != "stop" else ROWS_PER_KEY


def _is_lookup(join: Join, query: LogicalQuery) -> bool:
    return any(query.inputs[number].stream.outside for number in join.right.inputs)


def _placed(query: LogicalQuery, setting: str, error: WatersmeetError) -> WatersmeetError:
    error.position = query.text.settings_positions.get(setting, query.text.position)
    return error
