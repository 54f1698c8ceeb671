"""A local web page to try a model: `answers` computes, `server` speaks HTTP, `page/` has the HTML."""
