/* Theme: follows the system until somebody chooses. */
{
  const root = document.documentElement;
  const remembered = () => { try { return localStorage.getItem("leakscope-theme"); } catch { return null; } };
  const remember = (theme) => { try { localStorage.setItem("leakscope-theme", theme); } catch { /* not allowed here */ } };
  const chosen = new URLSearchParams(location.search).get("theme") || remembered();
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  const themeButton = document.getElementById("theme");
  themeButton.hidden = false;
  themeButton.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    remember(root.dataset.theme);
  });
}
