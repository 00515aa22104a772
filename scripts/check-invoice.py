#!/usr/bin/env python3
"""Computes a month's invoice from raw usage records, and compares it with the one that the server gave, to the last digit.

    # of the month, and of those before it since the first credit's
    weir usage records --from 2026-11-01T00:00:00Z --to 2026-12-01T00:00:00Z --format csv > records.csv
    weir billing show acme --json > billing.json        # its rate cards too
    weir credits list acme --json > credits.json
    weir invoice 2026-11 --format json > invoice.json
    python3 scripts/check-invoice.py --records records.csv --billing billing.json --credits credits.json invoice.json

Of the records it reads the columns `id`, `time` (milliseconds since 1970), `tenant`, `outcome`, `device`, and those that are priced.
A record has a row for each device and model that it used, or one; what it says of the call as a whole is read of the first.

It shares nothing with the server but docs/billing.md, which says how an invoice is made. Needs Python 3.9 or newer, and nothing
beside it. Exits with 0 if the invoice agrees, with 1 and what differs if it does not, with 2 if it was called in a wrong way.
"""

import argparse
import csv
import datetime
import decimal
import json
import sys
from decimal import Decimal

# All but the rounding of lines is exact, or an error.
decimal.setcontext(decimal.Context(prec=400, traps=[decimal.Inexact, decimal.InvalidOperation, decimal.DivisionByZero]))
ROUNDING = decimal.Context(prec=400, rounding=decimal.ROUND_HALF_EVEN)

SECOND = Decimal(10**9)
GIB = Decimal(2**30)
GIB_SECOND = GIB * 1000

# Unit -> (the column that counts it, what one of it is of that, whether it is of devices), as invoices have them.
UNITS = {
    "device_second": ("device_ns", SECOND, True),
    "memory_gib_second": ("memory_byte_ms", GIB_SECOND, True),
    "reserved_gib_second": ("reserved_byte_ms", GIB_SECOND, True),
    "load": ("loads", Decimal(1), True),
    "load_second": ("load_ns", SECOND, True),
    "million_calls": ("calls", Decimal(10**6), False),
    "guest_cpu_second": ("guest_cpu_ns", SECOND, False),
    "host_memory_gib_second": ("host_memory_byte_ms", GIB_SECOND, False),
    "egress_gib": ("egress_bytes", GIB, False),
}

# Digits after the point, where they are not two. Source: ISO 4217.
DIGITS = {
    **dict.fromkeys("BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF".split(), 0),
    **dict.fromkeys("BHD IQD JOD KWD LYD OMR TND".split(), 3),
    **dict.fromkeys("CLF UYW".split(), 4),
}


def hour_of(millis):
    """The start of the hour of a moment, as prices have it."""
    start = datetime.datetime.fromtimestamp(millis // 3_600_000 * 3600, datetime.timezone.utc)
    return start.strftime("%Y-%m-%dT%H:00:00Z")


def last(versions, hour):
    """The version that holds in an hour, of versions in any order. Texts of hours are in the order of time."""
    begun = [version for version in versions if version["effective_from"] <= hour]
    return max(begun, key=lambda version: version["effective_from"], default=None)


class Prices:
    """What holds for the tenant, hour by hour."""

    START = "1970-01-01T00:00:00Z"

    def __init__(self, cards, billing):
        self.cards = {card["name"]: card for card in cards}
        # Before the first version it is the default card; versions that say the same are one.
        self.billing = [{"effective_from": self.START, "rate_card": "default", "prices": {}}]
        for said in sorted(billing, key=lambda version: version["effective_from"]):
            version = {"rate_card": "default", "prices": {}, **said}
            before = self.billing[-1]
            if version["effective_from"] == before["effective_from"]:
                self.billing.pop()
                self.billing.append(version)
            elif any(version[field] != before[field] for field in ("rate_card", "prices")):
                self.billing.append(version)

    def at(self, hour):
        """The tenant's billing, its card, and the card's version."""
        billing = last(self.billing, hour)
        card = self.cards.get(billing["rate_card"])
        return billing, card, card and last(card["versions"], hour)

    def of(self, hour, device, unit):
        """The class of the device, and since when a price holds, the card, the currency and the price, if there is one."""
        billing, card, version = self.at(hour)
        kind = device.rstrip("0123456789")
        name = ((version or {}).get("classes") or {}).get(device, kind) if device else ""
        if card is None:
            return name, None
        price = None
        for prices in (billing.get("prices"), version and version.get("prices")):
            prices = prices or {}
            if device:
                classes = prices.get("devices") or {}
                found = [classes.get(known, {}).get(unit) for known in (name, "default")]
            else:
                found = [(prices.get("calls") or {}).get(unit)]
            price = next((one for one in found if one is not None), None)
            if price is not None:
                break
        if price is None:
            return name, None
        since = max(billing["effective_from"], version["effective_from"] if version else self.START)
        return name, (since, card["name"], card["currency"], Decimal(price))


def read(path, tenant):
    """The tenant's records: (hour, device or "", column, count)."""
    seen = set()
    counted = []
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["tenant"] != tenant:
                continue
            hour = hour_of(int(row["time"]))
            # A record has a row for each device and model. What it says of the call as a whole counts once.
            is_first = row["id"] not in seen
            seen.add(row["id"])
            for column, _, of_devices in UNITS.values():
                count = int(row[column] or 0)
                if of_devices and row["device"] and count:
                    counted.append((hour, row["device"], column, count))
                elif column == "calls" and row["outcome"] == "refused":
                    pass  # Free.
                elif not of_devices and is_first and count:
                    counted.append((hour, "", column, count))
    return counted


class Bill:
    """What a month costs, before credits."""

    def __init__(self, month, counted, prices):
        lines, unpriced = {}, {}
        for hour, device, column, count in counted:
            if not hour.startswith(month):
                continue
            unit = next(unit for unit, (of, *_) in UNITS.items() if of == column)
            name, price = prices.of(hour, device, unit)
            if price is None:
                unpriced[unit, name] = unpriced.get((unit, name), 0) + count
            else:
                since, card, currency, price = price
                line = lines.setdefault((unit, name, since, card), [0, price, currency])
                line[0] += count
        currencies = {currency for *_, currency in lines.values()}
        assert len(currencies) <= 1, "prices of two currencies"
        self.currency = next(iter(currencies), None)
        self.lines = {}
        for key, (count, price, currency) in lines.items():
            quantity = Decimal(count) / UNITS[key[0]][1]
            self.lines[key] = (quantity, price, money(quantity * price, currency))
        self.subtotal = sum((amount for *_, amount in self.lines.values()), Decimal(0))
        self.unpriced = {key: Decimal(count) / UNITS[key[0]][1] for key, count in unpriced.items()}


def money(amount, currency):
    """An amount as it is owed."""
    return amount.quantize(Decimal(1).scaleb(-DIGITS.get(currency, 2)), context=ROUNDING)


def following(month):
    year, number = map(int, month.split("-"))
    return f"{year + 1:04}-01" if number == 12 else f"{year:04}-{number + 1:02}"


def pay(credits, left, month, bill):
    """What credits pay of a bill: (credit, what was left of it, amount), in the order in which they are used."""
    paid, due = [], bill.subtotal
    for credit in sorted(credits, key=lambda one: (one["from"], one.get("through") or "9999-99", one["id"])):
        holds = credit["from"] <= month <= (credit.get("through") or "9999-99")
        amount = min(due, left[credit["id"]])
        if holds and credit["currency"] == bill.currency and amount > 0:
            paid.append((credit["id"], left[credit["id"]], amount))
            left[credit["id"]] -= amount
            due -= amount
    return paid, due


def differences(invoice, bill, paid, total):
    """What the invoice says otherwise."""

    def compare(what, says, is_so):
        for key in sorted(set(says) | set(is_so), key=str):
            if says.get(key) != is_so.get(key):
                yield f"{what} {key}: the invoice says {says.get(key)}, the records {is_so.get(key)}"

    def line_key(line):
        return line["unit"], line.get("class", ""), line["prices_of"], line["rate_card"]

    def digits(amount):
        return str(money(amount, bill.currency)) if bill.currency else str(amount)

    says = {line_key(line): (Decimal(line["quantity"]), Decimal(line["price"]), line["amount"]) for line in invoice["lines"]}
    is_so = {key: (quantity, price, digits(amount)) for key, (quantity, price, amount) in bill.lines.items()}
    if len(says) != len(invoice["lines"]):
        yield "two lines are of the same"
    yield from compare("line", says, is_so)
    says = {(one["unit"], one.get("class", "")): Decimal(one["quantity"]) for one in invoice["unpriced"]}
    yield from compare("without a price", says, bill.unpriced)
    says = [(one["id"], one["available"], one["amount"]) for one in invoice["credits"]]
    is_so = [(name, digits(before), digits(amount)) for name, before, amount in paid]
    if says != is_so:
        yield f"credits: the invoice says {says}, the records {is_so}"
    if bill.lines:
        sums = {"currency": bill.currency, "subtotal": digits(bill.subtotal), "total": digits(total)}
        yield from compare("sum", {name: invoice[name] for name in sums}, sums)
    elif Decimal(invoice["total"]) != 0:
        yield f"the total is {invoice['total']}, and nothing has a price"


def main():
    parser = argparse.ArgumentParser(description="Checks an invoice against raw usage records.")
    parser.add_argument("--records", required=True, help="CSV of usage records")
    parser.add_argument("--billing", required=True, help="JSON: how the tenant is billed, and the rate cards")
    parser.add_argument("--credits", help="JSON: the tenant's credits")
    parser.add_argument("invoice", help="JSON: the invoice")
    options = parser.parse_args()

    def load(path, field):
        if path is None:
            return []
        with open(path, encoding="utf-8") as file:
            return json.load(file)[field]

    with open(options.invoice, encoding="utf-8") as file:
        invoice = json.load(file)
    tenant, month = invoice["tenant"], invoice["month"]
    prices = Prices(load(options.billing, "rate_cards"), load(options.billing, "versions"))
    credits = load(options.credits, "credits")
    counted = read(options.records, tenant)

    left = {credit["id"]: Decimal(credit["amount"]) for credit in credits}
    at = min([credit["from"] for credit in credits] + [month])
    while True:
        bill = Bill(at, counted, prices)
        paid, total = pay(credits, left, at, bill)
        if at == month:
            break
        at = following(at)
    wrong = list(differences(invoice, bill, paid, total))
    for one in wrong:
        print(one)
    if wrong:
        return 1
    lines, currency = len(bill.lines), invoice["currency"]
    print(f"The invoice of {month} for {tenant} agrees: {lines} lines, {invoice['total']} {currency or ''}".rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
