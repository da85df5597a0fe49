"""SQL injection through names, values, types and references."""

from __future__ import annotations

import pytest

from aaiclick.data import View, col, create_object_from_value, list_objects, open_object, open_reference
from aaiclick.data.errors import DataError

ATTACKS = [
    "'; DROP TABLE victim; --",
    "\\'; DROP TABLE victim; --",
    "\\",
    "\\\\'",
    "`; DROP TABLE victim; --",
    "a` Int8) ENGINE = Memory; DROP TABLE victim; --",
    '"; DROP TABLE victim; --',
    "x' OR 1=1 --",
    "x' UNION ALL SELECT password FROM system.users --",
    "') FROM url('http://127.0.0.1/') --",
    "{p0:String}",
    "{p0:Identifier}",
    "%s %d %(x)s",
    "$$",
    "/* */",
    "-- x",
    "\n\t\r\b",
    "x\\n",
    "'||(SELECT 1)||'",
    "${jndi:ldap://x}",
    "🦆 ünïcode",
    "a.b.c",
    "*",
    "1",
    "NULL",
    "FORMAT JSON",
    "x SETTINGS max_threads=1",
]


@pytest.fixture
async def victim(data):
    return await create_object_from_value(["untouched"], name="victim")


@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
async def test_text_stays_text(data, victim, attack):
    obj = await create_object_from_value({attack: [attack, "other"], "n": [1, 2]})
    assert await obj.data() == {attack: [attack, "other"], "n": [1, 2]}
    assert await obj.filter(col(attack) == attack).data() == {attack: [attack], "n": [1]}
    assert await obj.filter(col(attack).isin([attack, "x"])).count() == 1
    assert await obj.select(**{attack: col(attack).str.replace(attack, attack + "!")}).data() == {
        attack: [attack + "!", "other"]
    }
    assert await obj.group_by(attack).agg(col("n").sum()).sort("n")["n"].data() == [1, 2]
    view = View(obj, where=(col(attack) == attack) & (col("n") < 5))
    assert await (await open_reference(view.to_dict())).data() == {attack: [attack], "n": [1]}
    filtered = await obj.sort(attack)
    assert sorted((await filtered.data())[attack]) == sorted([attack, "other"])
    assert await (await open_object("victim")).data() == ["untouched"]


@pytest.mark.parametrize("attack", [a for a in ATTACKS if a.isprintable()], ids=lambda attack: repr(attack))
async def test_object_names_stay_names(data, victim, attack):
    await create_object_from_value([1], name=attack)
    assert sorted(await list_objects()) == sorted({"victim", attack})
    assert await (await open_object(attack)).data() == [1]
    assert await (await open_object("victim")).data() == ["untouched"]


@pytest.mark.parametrize(
    "form",
    [
        {"object_type": "object", "table_id": "t1` UNION ALL SELECT 1 --"},
        {"object_type": "object", "table_id": "system.users"},
        {"object_type": "object", "table_id": "users"},
        {"object_type": "view", "table_id": "TABLE", "where": "1) UNION ALL SELECT (1"},
        {"object_type": "view", "table_id": "TABLE", "offset": "0; DROP TABLE x"},
        {"object_type": "view", "table_id": "TABLE", "offset": -1},
        {"object_type": "view", "table_id": "TABLE", "limit": 1.5},
        {"object_type": "view", "table_id": "TABLE", "limit": True},
        {"object_type": "view", "table_id": "TABLE", "settings": "max_threads=1"},
        {"object_type": "table", "table_id": "TABLE"},
        {"object_type": "object", "table_id": ["t1"]},
        {"object_type": "object"},
        "t1",
        None,
        {"object_type": "view", "table_id": "TABLE", "where": "value IN (SELECT 1)"},
        {"object_type": "view", "table_id": "TABLE", "where": 7},
    ],
    ids=repr,
)
async def test_forms_from_outside_are_checked(data, victim, form):
    if isinstance(form, dict) and form.get("table_id") == "TABLE":
        form = {**form, "table_id": victim.table_id}
    with pytest.raises(DataError):
        await open_reference(form)


@pytest.mark.parametrize(
    "type_text",
    ["Int64); DROP TABLE victim; --", "Int64, x Int8", "Nope", "AggregateFunction(sum, Int8)", "Enum8('a'=1", ""],
)
async def test_types_from_outside_are_checked(data, victim, type_text):
    with pytest.raises(DataError):
        await create_object_from_value([1], schema={"value": type_text})
    with pytest.raises(DataError):
        victim.select(x=col("value").cast(type_text))
