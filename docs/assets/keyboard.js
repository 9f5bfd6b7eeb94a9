// What scrolls can be reached by keyboard: the theme leaves wide code and tables out. The buttons beside each
// code block are no navigation of the page, the search and its buttons have names, and an empty corner of a
// table is no heading.
function reach() {
  for (const search of document.querySelectorAll("[role=dialog]")) search.setAttribute("aria-label", "Search");
  for (const buttons of document.querySelectorAll("nav.md-search__options")) buttons.setAttribute("aria-label", "Of the search");
  for (const buttons of document.querySelectorAll("nav.md-code__nav")) buttons.setAttribute("role", "none");
  for (const corner of document.querySelectorAll("th:empty")) corner.replaceWith(document.createElement("td"));
  for (const box of document.querySelectorAll("pre > code, .md-typeset__scrollwrap, .formula")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
}
addEventListener("load", reach);
addEventListener("load", () => setTimeout(reach, 300)); // once more when the theme has added its buttons
addEventListener("resize", reach);
