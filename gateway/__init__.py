"""The one HTTP port and the processes of ``pickwise serve``."""
