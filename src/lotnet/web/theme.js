"use strict";
// Light and dark: the system's choice until the button is pressed.
{
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const mark = () => button.setAttribute("aria-pressed", String(isDark()));
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    mark();
  });
  system.addEventListener("change", mark);
  document.documentElement.classList.add("script");
  mark();
}
