"""What people call the columns of a table of captions."""

IMAGE_COLUMNS = (
    "image",
    "file_name",
    "filename",
    "file",
    "image_name",
    "image_path",
    "filepath",
    "path",
    "img",
    "image_file",
)
CAPTION_COLUMNS = (
    "caption",
    "captions",
    "text",
    "sentence",
    "sentences",
    "raw",
    "comment",
    "description",
)
SPLIT_COLUMNS = ("split", "set", "partition")
ID_COLUMNS = ("caption_id", "sentid", "id")
