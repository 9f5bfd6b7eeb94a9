// What scrolls can be reached by keyboard: the theme leaves wide code and tables out. The buttons beside
// each code block are a group, not one more navigation of the page, and the search has a name.
function reach() {
  for (const search of document.querySelectorAll("[role=dialog]")) search.setAttribute("aria-label", "Search");
  for (const buttons of document.querySelectorAll("nav.md-code__nav")) buttons.setAttribute("role", "group");
  for (const box of document.querySelectorAll("pre > code, .md-typeset__scrollwrap, .formula")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
}
addEventListener("load", reach);
addEventListener("load", () => setTimeout(reach, 300)); // once more when the theme has added its buttons
addEventListener("resize", reach);
