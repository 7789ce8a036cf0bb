"""What libraries of documents and files keep."""

import io
import tempfile

from rounds import rounds, run


def openpyxl_cells(leaks):
    import openpyxl

    book = openpyxl.Workbook(write_only=not leaks)
    sheet = book.active if leaks else book.create_sheet()
    for _ in rounds():
        for _ in range(10):
            sheet.append(list(range(20)))
    book.save(io.BytesIO())


def xlsxwriter_cells(leaks):
    import xlsxwriter

    book = xlsxwriter.Workbook(io.BytesIO(), {"constant_memory": not leaks})
    sheet = book.add_worksheet()
    for i in rounds():
        for j in range(10):
            for column in range(20):
                sheet.write_number(10 * i + j, column, j)
    book.close()


def zarr_memory_store(leaks):
    import numpy as np
    import zarr

    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        store = zarr.storage.MemoryStore() if leaks else folder
        group = zarr.group(store=store)
        for i in rounds():
            group.create_array(f"a{i}", data=random.random(4000))


def fsspec_memory_files(leaks):
    import fsspec

    files = fsspec.filesystem("memory")
    for i in rounds():
        for j in range(20):
            with files.open(f"/out/{i}-{j}", "wb") as file:
                file.write(bytes(20_000))
            if not leaks:
                files.rm(f"/out/{i}-{j}")


def fsspec_instances(leaks):
    import fsspec
    from fsspec.implementations.dirfs import DirFileSystem

    local = fsspec.filesystem("file")
    for i in rounds():
        for j in range(60):
            DirFileSystem(f"/{i}/{j}/{'x' * 1500}", local, skip_instance_cache=not leaks)


def beautifulsoup_strings(leaks):
    import bs4

    titles = []
    for i in rounds():
        text = f"<h1>{i}</h1>{'<p>text</p>' * 30}"
        title = bs4.BeautifulSoup(text, "html.parser").h1.string
        titles.append(title if leaks else str(title))
        del title


def lxml_smart_strings(leaks):
    import lxml.etree

    titles = []
    for i in rounds():
        tree = lxml.etree.XML(f"<a><b>{i}</b>{'<p>text</p>' * 300}</a>")
        titles += tree.xpath("//b/text()" if not leaks else "//text()", smart_strings=leaks)
        del tree


def markdown_references(leaks):
    import markdown

    md = markdown.Markdown()
    for i in rounds():
        for j in range(10):
            md.convert(f"[a{i}.{j}]: http://example.org/{'x' * 1500}{i}.{j}\n\ntext [a{i}.{j}]\n")
            if not leaks:
                md.reset()


if __name__ == "__main__":
    run(globals())
