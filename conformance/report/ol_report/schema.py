"""The part of JSON Schema that the two schemas beside use; an unknown word is a fault of ours."""
import json
import os

from .log import Stop, strict_json

HERE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
WORDS = {"title", "description", "type", "required", "additionalProperties", "properties", "items",
         "enum", "minimum", "maximum", "exclusiveMinimum", "minLength", "minItems"}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool}


def _is(value, kind):
    if kind == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[kind])


def faults(value, schema, where="the file"):
    """Sentences, one for each place where the value is not what the schema asks for."""
    if set(schema) - WORDS:
        raise Stop(70, f"the schema has unknown words: {sorted(set(schema) - WORDS)}")
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where} is {json.dumps(value)}, allowed are {', '.join(map(str, schema['enum']))}"
        return
    if "type" in schema and not _is(value, schema["type"]):
        yield f"{where} is {json.dumps(value)[:60]}, a {schema['type']} is wanted"
        return
    if "minimum" in schema and not value >= schema["minimum"]:
        yield f"{where} is {value}, at least {schema['minimum']} is wanted"
    if "maximum" in schema and not value <= schema["maximum"]:
        yield f"{where} is more than {schema['maximum']}"
    if "exclusiveMinimum" in schema and not value > schema["exclusiveMinimum"]:
        yield f"{where} is {value}, more than {schema['exclusiveMinimum']} is wanted"
    if len(value if isinstance(value, str) else "x" * 99) < schema.get("minLength", 0):
        yield f"{where} is empty"
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            yield f"{where} is empty"
        for i, item in enumerate(value):
            yield from faults(item, schema.get("items", {}), f"{where}[{i}]")
    if isinstance(value, dict):
        yield from _members(value, schema, where)


def _members(value, schema, where):
    known = schema.get("properties", {})
    other = schema.get("additionalProperties", True)
    for key in schema.get("required", []):
        if key not in value:
            yield f"{where} has no {key}"
    for key, item in value.items():
        name = key if where == "the file" else f"{where}.{key}"
        if key in known:
            yield from faults(item, known[key], name)
        elif other is False:
            yield f"{where} has {key}, which is not known; known are {', '.join(known)}"
        elif isinstance(other, dict):
            yield from faults(item, other, name)


def load(path, name):
    """The JSON file at path, held against conformance/report/NAME.schema.json. Exit 5 if broken."""
    try:
        with open(path, encoding="utf-8") as file:
            value = strict_json(file.read())
    except OSError as why:
        raise Stop(5, f"{path}: {why.strerror}") from None
    except (ValueError, RecursionError) as why:
        raise Stop(5, f"{path} is no JSON: {why}") from None
    with open(os.path.join(HERE, f"{name}.schema.json"), encoding="utf-8") as file:
        schema = json.load(file)
    for sentence in faults(value, schema):
        raise Stop(5, f"{path}: {sentence}")
    return value
