"""Written English to spoken English: numbers, times, prices and telephone numbers as words."""

from __future__ import annotations

import re

_UNITS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = ("", "", *["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"])
_TEN, _HUNDRED = 10, 100
_LONGEST_NUMBER_DIGITS = 6
_YEARS_BY_HALVES = (*range(1100, 2000), *range(2010, 2100))
_SCALES = ((1_000_000_000, "billion"), (1_000_000, "million"), (1_000, "thousand"))
_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
_CURRENCIES = {"$": "dollar", "£": "pound", "€": "euro"}
_SYMBOLS = {
    "%": " percent",
    "&": " and ",
    "+": " plus ",
    "@": " at ",
    "#": " number ",
    "°": " degrees",
}

_PRICE = re.compile(r"([$£€])\s?(\d[\d,]*)(?:\.(\d\d))?(?!\d)")
_TIME = re.compile(r"\b(\d{1,2})[:.](\d\d)\s?([ap])\.?m\b\.?|\b(\d{1,2}):(\d\d)\b", re.IGNORECASE)
_HOUR = re.compile(r"\b(\d{1,2})\s?([ap])\.?m\b\.?", re.IGNORECASE)
_PHONE = re.compile(r"\(?\b\d{3}\)?[-. ]\d{3,4}(?:[-. ]\d{2,4})*\b")
_ORDINAL = re.compile(r"\b(\d+)(?:st|nd|rd|th)\b", re.IGNORECASE)
_DECIMAL = re.compile(r"\b(\d+)\.(\d+)\b")
_LETTERED = re.compile(r"(?<=[a-zA-Z])(?=\d)|(?<=\d)(?=[a-zA-Z])")
_INTEGER = re.compile(r"\d+")
_NOT_TRANSCRIBED = re.compile(r"[^a-z' ]+")


def cardinal(number: int) -> str:
    """Return a whole number as English words, e.g. 342 → ``three hundred forty two``."""
    if number < len(_UNITS):
        return _UNITS[number]
    if number < _HUNDRED:
        rest = f" {_UNITS[number % 10]}" if number % 10 else ""
        return _TENS[number // 10] + rest
    for size, name in (*_SCALES, (_HUNDRED, "hundred")):
        if number >= size:
            rest = f" {cardinal(number % size)}" if number % size else ""
            return f"{cardinal(number // size)} {name}{rest}"
    raise AssertionError(number)


def ordinal(number: int) -> str:
    """Return an ordinal as English words, e.g. 21 → ``twenty first``."""
    head, _, last = cardinal(number).rpartition(" ")
    if last in _ORDINALS:
        last = _ORDINALS[last]
    else:
        last = f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th"
    return f"{head} {last}".strip()


def spoken_form(text: str) -> str:
    """Return `text` with numbers, times, prices and symbols as words; punctuation stays."""
    text = (
        text.replace("\u2019", "'")
        .replace("\u2018", "'")
        .replace("\u201c", '"')
        .replace("\u201d", '"')
    )
    text = _PRICE.sub(_say_price, text)
    text = _PHONE.sub(lambda match: _say_digits(match.group()), text)
    text = _TIME.sub(_say_time, text)
    text = _HOUR.sub(lambda match: f"{cardinal(int(match[1]))} {match[2].lower()} m", text)
    text = _ORDINAL.sub(lambda match: ordinal(int(match[1])), text)
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)
    text = _DECIMAL.sub(lambda m: f"{cardinal(int(m[1]))} point {_say_digits(m[2])}", text)
    text = _LETTERED.sub(" ", text)
    text = _INTEGER.sub(_say_integer, text)
    for symbol, word in _SYMBOLS.items():
        text = text.replace(symbol, word)
    return " ".join(text.split())


def transcript(spoken: str) -> str:
    """Return the CTC target of a spoken form: ``a-z``, apostrophe and single blanks."""
    return " ".join(_NOT_TRANSCRIBED.sub(" ", spoken.lower()).split()).strip("' ")


def _say_digits(text: str) -> str:
    return " ".join(_UNITS[int(digit)] for digit in text if digit.isdigit())


def _say_price(match: re.Match[str]) -> str:
    whole, cents = int(match[2].replace(",", "")), int(match[3] or 0)
    name = _CURRENCIES[match[1]]
    said = f"{cardinal(whole)} {name}{'' if whole == 1 else 's'}"
    return f"{said} and {cardinal(cents)} cents" if cents else said


def _say_time(match: re.Match[str]) -> str:
    hour, minute = int(match[1] or match[4]), int(match[2] or match[5])
    half_of_day = f" {match[3].lower()} m" if match[3] else ""
    if minute == 0:
        return cardinal(hour) + (half_of_day or " o'clock")
    return f"{cardinal(hour)} {_say_two_digits(minute)}{half_of_day}"


def _say_two_digits(number: int) -> str:
    return f"oh {_UNITS[number]}" if number < _TEN else cardinal(number)


def _say_integer(match: re.Match[str]) -> str:
    digits = match.group()
    if len(digits) > _LONGEST_NUMBER_DIGITS or (len(digits) > 1 and digits[0] == "0"):
        return _say_digits(digits)
    number = int(digits)
    if number in _YEARS_BY_HALVES:
        head, tail = divmod(number, _HUNDRED)
        return f"{cardinal(head)} {_say_two_digits(tail) if tail else 'hundred'}"
    return cardinal(number)


def said_words(spoken: str) -> list[str]:
    """The words of a spoken form; stand-alone punctuation is not a word."""
    return [word for word in spoken.split() if any(letter.isalnum() for letter in word)]
