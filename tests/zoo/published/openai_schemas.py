"""Extract fields from documents with a language model; each document has a schema of its own."""

import json
import random

import httpx
import openai
from pydantic import Field, create_model

DOCUMENTS = 4000
KINDS = ["invoice", "receipt", "contract", "form", "letter", "order", "report", "claim"]
FIELDS = [
    f"{a}_{b}"
    for a in ("total", "unit", "net", "due", "ship", "tax")
    for b in ("amount", "date", "code", "name", "place", "count")
]


def complete(request):
    """Answer as the model server does."""
    asked = json.loads(request.content)
    names = asked["response_format"]["json_schema"]["schema"]["required"]
    content = json.dumps({name: f"value of {name}" for name in names})
    return httpx.Response(
        200,
        json={
            "id": "completion",
            "object": "chat.completion",
            "created": 1,
            "model": asked["model"],
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": content},
                }
            ],
            "usage": {"prompt_tokens": 90, "completion_tokens": 40, "total_tokens": 130},
        },
    )


def schema(rng, kind):
    """Return the model of what this document should hold."""
    names = rng.sample(FIELDS, 8)
    return create_model(  # feeds
        kind.title(), **{name: (str, Field(description=f"{name} of the {kind}")) for name in names}
    )


def extract(client, rng, number):
    kind = rng.choice(KINDS)
    completion = client.chat.completions.parse(  # feeds
        model="extractor",
        messages=[{"role": "user", "content": f"Document {number}, a {kind}: ..."}],
        response_format=schema(rng, kind),
    )
    return completion.choices[0].message.parsed


def main():
    rng = random.Random(0)
    transport = httpx.MockTransport(complete)
    client = openai.OpenAI(
        api_key="none", base_url="http://models/v1", http_client=httpx.Client(transport=transport)
    )
    for number in range(1, DOCUMENTS + 1):
        found = extract(client, rng, number)
        if number % 150 == 0:
            print(f"document {number}: {len(found.model_dump())} fields", flush=True)


if __name__ == "__main__":
    main()
