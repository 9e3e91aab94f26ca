// Before anything is drawn: the theme that was chosen here, else the system's.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("tandembus-theme"); } catch { /* no storage: the system's theme */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
