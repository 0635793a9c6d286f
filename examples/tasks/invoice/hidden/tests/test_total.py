import unittest

from invoice.items import price
from invoice.tax import tax
from invoice.total import total


class TestTotal(unittest.TestCase):
    def test_quantities_count(self):
        self.assertEqual(price(2.5, 4), 10.0)

    def test_tax_is_rounded_to_cents(self):
        self.assertEqual(tax(0.99), 0.19)

    def test_a_total_has_both(self):
        self.assertEqual(total([(0.33, 3), (10.0, 1)]), 10.99 + 2.09)
