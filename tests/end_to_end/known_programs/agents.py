"""What libraries of agents and chats keep."""

from typing import TypedDict

from rounds import rounds, run

TEXT = "x" * 4000


def langchain_chat_history(leaks):
    from langchain_core.chat_history import InMemoryChatMessageHistory

    history = InMemoryChatMessageHistory()
    for i in rounds():
        for j in range(4):
            history.add_user_message(f"{TEXT}{i}.{j}")
        if not leaks:
            history.clear()


def langchain_cache(leaks):
    from langchain_core.caches import InMemoryCache
    from langchain_core.outputs import Generation

    cache = InMemoryCache(maxsize=None if leaks else 10)
    for i in rounds():
        for j in range(4):
            cache.update(f"{TEXT}{i}.{j}", "model", [Generation(text=f"{TEXT}{i}.{j}")])


def langchain_vector_store(leaks):
    from langchain_core.embeddings import DeterministicFakeEmbedding
    from langchain_core.vectorstores import InMemoryVectorStore

    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=256))
    for i in rounds():
        ids = store.add_texts([f"{i} {j}" for j in range(4)])
        if not leaks:
            store.delete(ids)


class State(TypedDict):
    text: str


def langgraph_saver(leaks):
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import END, START, StateGraph

    graph, saver = StateGraph(State), InMemorySaver()
    graph.add_node("echo", lambda state: {"text": state["text"]})
    graph.add_edge(START, "echo")
    graph.add_edge("echo", END)
    app = graph.compile(checkpointer=saver)
    for i in rounds():
        for j in range(2):
            name = f"{i}.{j}"
            app.invoke({"text": TEXT + name}, {"configurable": {"thread_id": name}})
            if not leaks:
                saver.delete_thread(name)


if __name__ == "__main__":
    run(globals())
