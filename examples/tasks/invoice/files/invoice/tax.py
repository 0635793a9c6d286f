"""Tax in cents."""

RATE = 0.19


def tax(amount: float) -> float:
    return amount * RATE
