"""What people look at: charts, templates, the glossary, pieces for a notebook."""
