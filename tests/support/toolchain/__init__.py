"""What the heavier test tiers need on the machine: Debian packages and Go programs, built once and cached."""
