"""A local page to try images on: `answers` computes, `server` speaks HTTP, `page/` is what a browser shows."""
