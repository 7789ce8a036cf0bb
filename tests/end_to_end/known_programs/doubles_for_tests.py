"""What libraries for tests keep."""

from rounds import rounds, run

TEXT = "x" * 4000


def responses_calls(leaks):
    import requests
    import responses

    with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
        mock.add(responses.GET, "http://example.org/", body=TEXT)
        session = requests.Session()
        for _ in rounds():
            for _ in range(2):
                session.get("http://example.org/")
            if not leaks:
                mock.reset()
                mock.add(responses.GET, "http://example.org/", body=TEXT)


def requests_mock_history(leaks):
    import requests
    import requests_mock

    session, adapter = requests.Session(), requests_mock.Adapter()
    session.mount("mock://", adapter)
    adapter.register_uri("POST", "mock://example.org/", text="x")
    for i in rounds():
        for j in range(4):
            session.post("mock://example.org/", data=f"{TEXT}{i}.{j}")
        if not leaks:
            adapter.reset()


def faker_unique(leaks):
    import faker

    fake = faker.Faker()
    for _ in rounds():
        for _ in range(400):
            fake.unique.random_int(0, 10**9)
        if not leaks:
            fake.unique.clear()


if __name__ == "__main__":
    run(globals())
