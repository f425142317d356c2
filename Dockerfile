# The page with the embedded pair, without torch:
#   docker build -t dolly-twice . && docker run --rm -p 7860:7860 dolly-twice
FROM python:3.12-slim

# OpenVINO and Gradio write to the home directory.
RUN useradd --create-home --uid 1000 dolly
WORKDIR /home/dolly/app

COPY requirements-runtime.txt .
RUN pip install --no-cache-dir -r requirements-runtime.txt

COPY --chown=dolly . .
USER dolly

ENV PYTHONUNBUFFERED=1 DOLLY_HOST=0.0.0.0 DOLLY_PORT=7860
EXPOSE 7860
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:7860/', timeout=4)"]

# The exec form, without a shell: SIGTERM must reach Python.
CMD ["python", "app.py"]
