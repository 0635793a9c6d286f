"""The total of an invoice."""

from invoice.items import price
from invoice.tax import tax


def total(items: list[tuple[float, int]]) -> float:
    amount = sum(price(*item) for item in items)
    return amount + tax(amount)
