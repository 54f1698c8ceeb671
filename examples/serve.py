"""Serve an ONNX file: `python serve.py model-float64.onnx 8000`. The answer to an image is its label and radius."""

import io
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import onnxruntime
from PIL import Image

session = onnxruntime.InferenceSession(sys.argv[1])
about = session.get_modelmeta().custom_metadata_map
classes, (channels, height, width) = json.loads(about["classes"]), json.loads(about["input_shape"])


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        try:
            image = Image.open(io.BytesIO(self.rfile.read(int(self.headers.get("Content-Length", 0)))))
            image = image.convert("L" if channels == 1 else "RGB").resize((width, height))  # unchanged at that size
        except Exception:  # Pillow raises many kinds for damaged files
            return self.answer(400, {"error": "this is not an image that can be read: send the bytes of one"})
        pixels = np.asarray(image, dtype=about["precision"]).reshape(1, height, width, channels) / 255
        logits, radii = session.run(json.loads(about["outputs"]), {"images": pixels.transpose(0, 3, 1, 2)})
        self.answer(200, {"label": classes[logits[0].argmax()], "radius": float(radii[0])})

    def answer(self, status, content):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
