# The page with the embedded pair, without torch, from the same folder as a Hugging Face Space:
#   docker build -t dolly-twice . && docker run --rm -p 7860:7860 dolly-twice
FROM python:3.12-slim AS base

# Changes with the requirements only.
FROM base AS packages
COPY requirements-runtime.txt /requirements.txt
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir -r /requirements.txt

# The files that the page reads, and no others.
FROM base AS files
COPY . /repository
WORKDIR /repository
RUN python -m serving.space /app

FROM base
# OpenVINO and Gradio write to the home directory; the program and its packages stay root's.
RUN useradd --create-home --uid 1000 dolly
COPY --from=packages /venv /venv
COPY --from=files /app /app
USER 1000
WORKDIR /app

ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    DOLLY_HOST=0.0.0.0 DOLLY_PORT=7860
EXPOSE 7860
# Ready when the models are loaded; a pair that is converted first needs a longer start period.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import os; from urllib.request import urlopen; urlopen(f'http://127.0.0.1:{os.environ[\"DOLLY_PORT\"]}/ready', timeout=4)"]

# The exec form, without a shell: SIGTERM must reach Python.
CMD ["python", "app.py"]
