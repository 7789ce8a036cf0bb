"""Shipping label renderer: two worker processes draw labels from a job queue."""

import multiprocessing as mp
import time

from PIL import Image, ImageDraw

JOBS = 420
CITIES = ["Porto", "Gdansk", "Malmo", "Graz", "Brno", "Lyon", "Cork", "Turku"]


def barcode(draw, number, box):
    x0, y0, x1, y1 = box
    bits = bin(number * 2654435761 % (1 << 32))[2:].zfill(32)
    step = (x1 - x0) / len(bits)
    for i, bit in enumerate(bits):
        if bit == "1":
            draw.rectangle([x0 + i * step, y0, x0 + (i + 1) * step - 1, y1], fill=0)


def make_label(job, size=(420, 300), layers=[]):
    """Draw the label of one job out of its layers, bottom first."""
    frame = Image.new("L", size, 255)
    ImageDraw.Draw(frame).rectangle([4, 4, size[0] - 5, size[1] - 5], outline=0, width=3)
    layers.append(frame)
    sheet = Image.new("L", size, 255)
    draw = ImageDraw.Draw(sheet)
    draw.text((20, 20), f"TO: {job['city']}", fill=0)
    draw.text((20, 40), f"WEIGHT: {job['grams']} g", fill=0)
    barcode(draw, job["number"], (20, 180, 400, 270))
    layers.append(sheet)
    out = Image.new("L", size, 255)
    for layer in layers[-2:]:
        out.paste(0, (0, 0), layer.point(lambda v: 255 - v))
    return out


def worker(jobs, results):
    while True:
        job = jobs.get()
        if job is None:
            break
        label = make_label(job)
        dark = sum(label.histogram()[:128])
        results.put((job["number"], dark))
        time.sleep(0.05)  # the printer's spool interval


def main():
    ctx = mp.get_context("spawn")
    jobs, results = ctx.Queue(maxsize=8), ctx.Queue()
    procs = [ctx.Process(target=worker, args=(jobs, results), daemon=True) for _ in range(2)]
    for p in procs:
        p.start()
    start = time.time()
    done = total = sent = 0
    while done < JOBS:
        while sent < JOBS and sent - done < 8:
            jobs.put(
                {
                    "number": 100_000 + sent,
                    "city": CITIES[sent % len(CITIES)],
                    "grams": 200 + (sent * 37) % 4000,
                }
            )
            sent += 1
        _, dark = results.get()
        total += dark
        done += 1
        if done % 60 == 0:
            print(
                f"{done} labels, mean ink {total / done:.0f} px, {time.time() - start:.1f}s",
                flush=True,
            )
    for _ in procs:
        jobs.put(None)
    for p in procs:
        p.join()


if __name__ == "__main__":
    main()
