// What scrolls can be reached by keyboard: the theme leaves wide code and tables out.
function reach() {
  for (const box of document.querySelectorAll("pre > code, .md-typeset__scrollwrap, .formula")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
}
addEventListener("load", () => setTimeout(reach, 300));
addEventListener("resize", reach);
