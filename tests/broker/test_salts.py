"""Salts of SCRAM: those of users, and those of names that nobody has, look alike."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from odradek.broker.security import salts
from odradek.broker.security.credentials import ScramCredential
from odradek.broker.security.salts import USUAL, Form, forms_of, made_up, new_salt

SECRET = b"a secret that stays"
NAMES = [f"SCRAM-SHA-256:user-{number}" for number in range(1_000)]


def user(salt: bytes, iterations: int = 4096) -> ScramCredential:
    return ScramCredential(salt, b"stored", b"server", iterations)


@pytest.mark.parametrize(
    ("number", "salt"),
    [
        (2**130 - 1, b"1omfro7zwmumr3umxudzyj6scf"),
        (36**25, b"1" + b"0" * 25),
        (36**25 - 1, b"z" * 25),
        (0, b"0"),
    ],
)
def test_a_salt_is_a_number_as_java_writes_it(
    number: int, salt: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def randbits(bits: int) -> int:
        assert bits == 130
        return number

    monkeypatch.setattr(salts.secrets, "randbits", randbits)
    assert int(new_salt(), 36) == number
    assert new_salt() == salt


def test_a_made_up_salt_is_such_a_number() -> None:
    made = [made_up(SECRET, name, USUAL) for name in NAMES]
    assert made == [made_up(SECRET, name, USUAL) for name in NAMES]
    assert {iterations for _, iterations in made} == {4096}
    found = [salt for salt, _ in made]
    assert len(set(found)) == len(NAMES)
    assert all(re.fullmatch(rb"[1-9a-z][0-9a-z]{20,25}", one) for one in found)
    assert all(int(one, 36) < 2**130 for one in found)
    sizes = Counter(map(len, found))  # of all such numbers 57 % have 25 digits, 41 % have 26
    assert 500 < sizes[25] < 640 and 340 < sizes[26] < 480


def test_names_that_nobody_has_look_as_users_do() -> None:
    users = [
        *(user(new_salt()) for _ in range(6)),
        *(user(new_salt(), 8192) for _ in range(2)),
        *(user(bytes(64), 4096) for _ in range(2)),
        user(bytes(64), 1),  # who cannot log in
    ]
    forms = forms_of(users)
    assert forms == {Form(4096, None): 6, Form(8192, None): 2, Form(4096, 64): 2}
    made = Counter(
        Form(iterations, 64 if len(salt) == 64 else None)
        for salt, iterations in (made_up(SECRET, name, forms) for name in NAMES)
    )
    assert set(made) == set(forms)
    for form, count in forms.items():
        assert abs(made[form] - 100 * count) < 50, form


def test_new_users_change_as_few_salts_as_can_be() -> None:
    before = {Form(4096, None): 6, Form(8192, None): 2}
    after = {Form(4096, None): 6, Form(8192, None): 3, Form(5000, 24): 1}
    changed = 0
    for name in NAMES:
        old, new = made_up(SECRET, name, before), made_up(SECRET, name, after)
        if old != new:
            changed += 1
            assert new[1] in (8192, 5000)
    assert 0 < changed < 300


def test_few_forms_are_chosen_among_and_no_salt_is_long() -> None:
    users = [user(bytes(10_000), 4096 + number) for number in range(100)]
    forms = forms_of(users)
    assert len(forms) == 8
    assert {form.salt_bytes for form in forms} == {128}
    assert forms_of([]) == USUAL
