// A picture is searched with as soon as it is chosen.
"use strict";

const chosen = document.getElementById("picture");
if (chosen) {
  chosen.addEventListener("change", () => {
    if (chosen.files.length) document.getElementById("upload").click();
  });
}
