"""``watersmeet demo``: a year of flights and weather, joined as streams."""

from __future__ import annotations


def demo() -> None:
    """Join a year of real flights and hourly weather as streams, and show the results."""
    from watersmeet.demo.run import main

    main()
