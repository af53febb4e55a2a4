"""Nexmark: queries over an auction's people, auctions and bids, with Watersmeet and its peers over the same files."""
